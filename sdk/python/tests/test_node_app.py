"""An app's TypeScript files, served by Node.js: they answer as they do inside the store."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import deploy, needs_server
from test_objects import Store

from millrace import Client
from millrace._types import dumps
from millrace.testing import Node

FOLDER = Path(__file__).parents[2] / "node"
ROOT = FOLDER.parents[1]
# What strips types where Node.js does not: scripts/python.sh installs it beside this Python's environment.
PACKAGES = Path(sys.prefix).parent / "node"
_SECONDS = 60.0


def strips_types() -> bool:
    if shutil.which("node") is None or not FOLDER.exists():
        return False
    code = "process.exit(require('node:module').stripTypeScriptTypes ? 0 : 1)"
    itself = subprocess.run(["node", "-e", code], check=False).returncode == 0
    return itself or (PACKAGES / "node_modules" / "amaro").exists()


needs_node = pytest.mark.skipif(not strips_types(), reason="there is no Node.js that strips types, and no amaro")
pytestmark = needs_node


def working_folder() -> Path:
    """Where the worker finds amaro."""
    return PACKAGES if PACKAGES.exists() else FOLDER


class NodeWorker:
    """A folder, served by ``worker.mjs``."""

    def __init__(self, folder: Path) -> None:
        command = ["node", str(FOLDER / "worker.mjs"), str(folder), "--port", "0"]
        self._process = subprocess.Popen(command, cwd=working_folder(), stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("worker at "), line
        self.url = line.split()[-1]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module", params=["http", "h2c"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    """Clients of a server that has the files of ``parity`` inside, and of one that has a worker of them."""
    inside, outside, worker = Node(), Node(), None
    try:
        inside.start()
        outside.start()
        worker = NodeWorker(FOLDER / "parity")
        command = [os.environ["MILLRACE_BINARY"], "deploy", str(FOLDER / "parity"), "--url", inside.url]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        deploy(outside, "parity", worker.url.replace("http:", f"{request.param}:"), tmp_path_factory.mktemp("settings"))
        with Client(inside.url) as one, Client(outside.url) as other:
            yield one, other
    finally:
        if worker is not None:
            worker.kill()
        inside.close()
        outside.close()


def ask(client: Client, method: str, path: str, body: bytes | None = None, **headers: str) -> list[Any]:
    """What both have to answer: an error's text may name a place in a file, which only the store knows."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = client.request(method, path, body=body, headers=named)
    seen = [reply.status, reply.headers.get("content-type"), reply.headers.get("x-length")]
    if reply.headers.get("content-type") != "application/problem+json":
        return [*seen, reply.body]
    problem = reply.json()
    detail = problem["detail"] if problem["code"] == "aborted" else None
    return [*seen, problem["code"], detail, problem.get("payload")]


CALLS: list[tuple[str, bytes]] = [
    *[
        ("shelf/a/put", b'{"name":"%s","price":%d}' % (name, price))
        for name, price in ((b"x", 1), (b"y", 2), (b"z", 3))
    ],
    ("shelf/a/page", b"null"),
    ("shelf/a/page", b'{"after":"item/x","limit":1}'),
    ("shelf/a/names", b"null"),
    ("shelf/a/value", b"null"),
    ("shelf/a/move", b'{"to":"b","name":"y"}'),
    ("shelf/a/move", b'{"to":"b","name":"nothing"}'),
    ("shelf/b/names", b"null"),
    ("shelf/a/remove", b'"x"'),
    ("shelf/a/remove", b'"x"'),
    ("shelf/a/copies", b'["p","q","p"]'),
    ("shelf/a/put", b'{"price":1}'),
    ("shelf/a/put", b"{"),
    ("shelf/a%20%C3%A4/who", b"null"),
    ("shelf/a/bytes", b"null"),
    ("shelf/a/same_time", b"null"),
    ("shelf/a/hashes", b"null"),
    ("shelf/a/nothing", b"null"),
    ("shelf/a/unknown_service", b"null"),
    ("shelf/a/unknown_handler", b"null"),
    ("shelf/a/query_that_writes", b"null"),
    ("shelf/a/fails", b"null"),
    ("shelf/a/_count", b"null"),
    ("shelf/a/later", b'"w"'),
    ("order/a/run", b"null"),
]


@needs_server
def test_calls_answer_the_same(both: tuple[Client, Client]) -> None:
    for path, body in CALLS:
        inside, outside = [ask(client, "POST", f"/call/{path}", body) for client in both]
        assert (path, outside) == (path, inside)


@needs_server
def test_routes_answer_the_same(both: tuple[Client, Client]) -> None:
    for method, path, body in [
        ("GET", "/shelf/echo/a%20b?q=1&q=%C3%A4", None),
        ("POST", "/shelf/text", "ä".encode()),
        ("POST", "/shelf/raw", b"\x00\xff"),
        ("POST", "/shelf/json", b'{"a":[1,null]}'),
        ("POST", "/shelf/json", b"{"),
        ("POST", "/shelf/items/r/one", b""),
        ("GET", "/shelf/items/r", None),
        ("POST", "/shelf/refuse", b""),
        ("DELETE", "/shelf/items/r", None),
        ("GET", "/shelf/nowhere", None),
    ]:
        inside, outside = [ask(client, method, path, body, X_Test="yes") for client in both]
        assert (path, outside) == (path, inside)


def ended(client: Client, id: str) -> list[Any]:
    end = time.monotonic() + _SECONDS
    while True:
        seen = client.request("GET", f"/invocations/{id}?wait_ms=1000").json()
        if seen["status"] in ("succeeded", "failed", "cancelled"):
            error = seen.get("error") or {}
            return [seen["status"], seen.get("output"), error.get("code"), error.get("payload")]
        assert time.monotonic() < end, seen


@needs_server
def test_workflows_end_the_same(both: tuple[Client, Client]) -> None:
    seen = []
    for client in both:
        mine: list[Any] = []
        for amount in (7, 1):
            id = client.call("shelf", "flows", "order", "ann")
            client.invocation(id).signal("paid", {"amount": amount})
            mine.append(ended(client, id))
        # Its compensation has removed what it had put.
        mine.append(client.call("shelf", "flows", "names"))
        mine.append(client.call("shelf", "flows", "order_as", "an-id"))
        mine.append(ended(client, "an-id"))
        mine.append(ended(client, client.send("order", "ann", "parent", [1, -1, 5]).id))
        seen.append(mine)
    assert seen[1] == seen[0]
    assert [one[0] for one in (seen[0][0], seen[0][1], seen[0][4], seen[0][5])] == [
        "succeeded",
        "failed",
        "succeeded",
        "succeeded",
    ]


@needs_server
@pytest.mark.parametrize("example", ["list", "transfer"])
def test_examples_keep_their_contract_in_a_worker(node: Node, tmp_path: Path, example: str) -> None:
    worker = NodeWorker(ROOT / "examples" / example)
    try:
        deploy(node, example, worker.url, tmp_path)
        test = ROOT / "examples" / example / "test.sh"
        environment = {**os.environ, "BINARY": os.environ["MILLRACE_BINARY"]}
        done = subprocess.run([str(test), node.url], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"app-refused: .* has no service"),
        ({"a.ts": "export default {};"}, r"app-refused: a.ts: the default export must be service"),
        ({"a.ts": "export const x = 1;"}, r"app-refused: a.ts: a service exports"),
        (
            {"a.ts": 'import { service } from "millrace"; export default service({}); export const Routes = {};'},
            r'app-refused: a.ts: it exports "Routes", .* did you mean "routes"',
        ),
        ({"a.ts": 'import "lodash";'}, r'app-refused: .*a.ts imports "lodash", which the store does not have'),
        ({"a.ts": 'import "node:fs";'}, r'app-refused: .*a.ts imports "node:fs"'),
        ({"a.ts": 'import "./_gone";'}, r'app-refused: .*a.ts imports "./_gone", and there is no such file'),
        ({"a.ts": 'import "../outside.ts";'}, r'app-refused: .*a.ts imports "../outside.ts", which is outside'),
        ({"a.ts": "export const routes = { GET: 5 };"}, r'app-refused: a.ts: route "GET"'),
        ({"a.ts": "export const routes = { '/x': () => 1 };"}, r'app-refused: a.ts: route "/x"'),
        ({"a.ts": "export default (", "b.ts": ""}, r"."),
        (
            {"a.ts": "export const routes = {};", "a.js": "export const routes = {};"},
            r"app-refused: two files are the service a",
        ),
    ],
)
def test_what_the_server_refuses_the_worker_refuses(tmp_path: Path, files: dict[str, str], message: str) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (tmp_path / "outside.ts").write_text("")
    for name, text in files.items():
        (app / name).write_text(text)
    command = ["node", str(FOLDER / "worker.mjs"), str(app), "--port", "0"]
    done = subprocess.run(command, cwd=working_folder(), capture_output=True, text=True, check=False, timeout=_SECONDS)
    assert done.returncode == 1
    assert re.search(message, done.stderr), done.stderr


@needs_server
def test_what_a_worker_does_not_have_is_named(node: Node, tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "gaps.ts").write_text(
        'import { service } from "millrace";\nexport default service({\n  hash: () => crypto.argon2id.hash("x"),\n});\n'
    )
    worker = NodeWorker(app)
    try:
        deploy(node, "gaps", worker.url, tmp_path)
        with Client(node.url) as client:
            reply = client.request("POST", "/call/gaps/k/hash", json=None)
            assert reply.status == 500
            assert reply.json()["detail"].startswith("not-in-worker: "), reply.body
    finally:
        worker.kill()


PAGES = """
import { service, query, workflow, Abort } from "millrace";
const page = (key: string) => (ctx: any) => ctx.object("photos", key);
const told = ({ code, reason, message }: any) => [code, reason ?? null, code ? message : "a TypeError"];
export default service({
  async save(ctx, { key, text, fails }: any) {
    ctx.set("saved", (ctx.get("saved") ?? 0) + 1);
    const options = { contentType: "text/plain", metadata: { color: "red" } };
    const written = await page(key)(ctx).put(text, options);
    if (fails) throw new Abort("no");
    return [written, ctx.get("saved")];
  },
  async read(ctx, key: string) {
    const stored = await page(key)(ctx).get();
    if (stored === null) return null;
    const { sizeBytes, etag, contentType, metadata, version, modifiedMs } = stored;
    const kinds = [stored.bytes() instanceof Uint8Array, typeof modifiedMs];
    const content = [stored.text(), [...stored.bytes()]];
    return [content, sizeBytes, etag, contentType, metadata, version, kinds, Object.keys(stored).sort()];
  },
  head: query(async (ctx, key: string) => {
    const info = await page(key)(ctx).head();
    return info && [info.sizeBytes, info.etag, info.metadata, Object.keys(info).sort()];
  }),
  bytes: (ctx, key: string) => page(key)(ctx).put(new Uint8Array([0, 255, 10])),
  json: async (ctx, key: string) => (await page(key)(ctx).get()).json(),
  once: (ctx, key: string) => page(key)(ctx).put("1", { ifNoneMatch: "*" }).catch(told),
  only_this: (ctx, [key, etag]: any) => page(key)(ctx).delete({ ifMatch: etag }).catch(told),
  remove: (ctx, key: string) => page(key)(ctx).delete(),
  list: async (ctx, options: any) => {
    const { objects, prefixes, next } = await ctx.objects("photos").list(options);
    const row = ({ key, sizeBytes, etag, modifiedMs }: any) => [key, sizeBytes, etag, typeof modifiedMs];
    return [objects.map(row), prefixes, next];
  },
  nowhere: (ctx) => ctx.object("nowhere", "a").get().catch(told),
  others: (ctx) => ctx.object("other", "a").get().catch(told),
  thrown_on: (ctx) => ctx.object("nowhere", "a").get(),
  too_large: (ctx) => page("large")(ctx).put("x".repeat(1024 * 1024 + 1)),
  async bad(ctx, what: string) {
    try {
      if (what === "body") await page("a")(ctx).put(5 as any);
      if (what === "option") await page("a")(ctx).put("x", { contenttype: "x" } as any);
      if (what === "list") await ctx.objects("photos").list({ size: 1 } as any);
    } catch (error) {
      return told(error);
    }
  },
  writes_in_a_query: query((ctx) => page("in-a-query")(ctx).put("x")),
  copies: workflow(async (ctx, [from, to]: any) => {
    const stored = await page(from)(ctx).get();
    await page(to)(ctx).put(stored.text());
    await ctx.sleep(1);
    return stored.text();
  }),
});
"""

OBJECTS: list[tuple[str, Any]] = [
    ("save", {"key": "dir/a", "text": "ä"}),
    ("read", "dir/a"),
    ("head", "dir/a"),
    ("read", "none"),
    ("head", "none"),
    ("save", {"key": "dir/a", "text": "void", "fails": True}),
    ("read", "dir/a"),
    ("bytes", "dir/b"),
    ("read", "dir/b"),
    ("save", {"key": "j", "text": '{"x":[1]}'}),
    ("json", "j"),
    ("once", "once"),
    ("once", "once"),
    ("only_this", ["once", "0" * 32]),
    ("list", {}),
    ("list", {"prefix": "dir/", "limit": 1}),
    ("list", {"prefix": "dir/", "limit": 1, "after": "dir/a"}),
    ("list", {"delimiter": "/"}),
    ("remove", "dir/a"),
    ("remove", "dir/a"),
    ("list", {}),
    ("nowhere", None),
    ("others", None),
    ("thrown_on", None),
    ("too_large", None),
    ("bad", "body"),
    ("bad", "option"),
    ("bad", "list"),
    ("writes_in_a_query", None),
]


@needs_server
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("scheme", ["http", "h2c"])
def test_objects_are_the_same(scheme: str, tmp_path: Path) -> None:
    app = tmp_path / "pages"
    app.mkdir()
    (app / "pages.ts").write_text(PAGES)

    def deploy_inside(node: Node) -> None:
        command = [os.environ["MILLRACE_BINARY"], "deploy", str(app), "--url", node.url]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    worker = NodeWorker(app)
    url = worker.url.replace("http:", f"{scheme}:")
    stores: list[Store] = []
    seen: list[list[Any]] = []
    try:
        stores.append(Store(tmp_path / "inside", "pages", deploy_inside))
        stores.append(Store(tmp_path / "outside", "pages", lambda node: deploy(node, "pages", url, tmp_path)))
        for store in stores:
            with Client(store.node.url) as client:
                calls = [ask(client, "POST", f"/call/pages/k/{name}", dumps(given)) for name, given in OBJECTS]
                copied = ended(client, client.send("pages", "k", "copies", ["j", "copy"]).id)
                seen.append([*zip(OBJECTS, calls, strict=True), copied, store.ask("GET", "photos/copy")])
    finally:
        for store in stores:
            store.close()
        worker.kill()
    for inside, outside in zip(*seen, strict=True):
        assert outside == inside
    assert seen[0][-2:] == [["succeeded", '{"x":[1]}', None, None], (200, '{"x":[1]}')]
