"""Bytes that the disk changed are never served, and are reported, in each part of each kind of file that keeps bodies.

One bit is flipped in one part of one body of each object. What a client then gets of the object is right, or is not the
whole. The log names the object, or the body where the object's name itself is what was changed.
"""

import contextlib
import http.client
import random
import re

import bodies
import client
from node import Calls, Failed, Node, require, wait_until, write_app

BLOCK_BYTES = bodies.BLOCK_BYTES
SMALL_BYTES, LARGE_BYTES, PART_BYTES = 200_000, 4_500_000, 5 << 20
KINDS = ["segment", "file", "part in a segment", "part in a file", "part of an open upload"]
# The scrub reads 32 MB a second.
REPORT_TIMEOUT_S = 40
# What is damaged, and where within it.
PLACES = {
    "header": ("header", 20), "owner": ("owner", -1), "first block": ("data", 0), "middle": ("data", BLOCK_BYTES + 7),
    "last byte": ("data", -1), "table": ("table", 1), "footer": ("footer", 20),
}
# Nothing of the owner is needed to read a body. In a segment the index tells where it lies, so its header is not needed either.
READABLE = {(kind, "owner") for kind in KINDS} | {(kind, "header") for kind in KINDS if kind not in ("file", "part in a file")}

CODE = """
import { service, query } from "millrace";

export default service({
  read: query(async (ctx, key: string) => (await ctx.object("proofs", key).get())?.text().length),
});
"""


class Objects:
    """Puts objects of each kind, and remembers what they hold."""

    def __init__(self, server, seed):
        self.client, self.generator = client.Client(server), random.Random(seed)
        self.contents, self.uploads = {}, {}

    def put(self, kind, key):
        """Makes one, and gives which of its bodies is to be damaged: a length."""
        if kind in ("segment", "file"):
            content = self.generator.randbytes(SMALL_BYTES if kind == "segment" else LARGE_BYTES)
            self.client.done("PUT", key, body=content)
            damaged = len(content)
        else:
            parts = [self.generator.randbytes(PART_BYTES), self.generator.randbytes(SMALL_BYTES)]
            upload = self.client.begin_upload(key)
            etags = [self.client.put_part(key, upload, number, part) for number, part in enumerate(parts, 1)]
            if kind == "part of an open upload":
                self.uploads[key] = (upload, etags)
            else:
                self.client.complete(key, upload, etags)
            content = b"".join(parts)
            damaged = PART_BYTES if kind == "part in a file" else SMALL_BYTES
        self.contents[key] = content
        return damaged


def flip(path, at):
    """Flips one bit of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 16]))


def plant(found, key, length, place):
    """Damages a place of the object's body of that length, and gives the body."""
    owned = [body for body in found if owner_is(body, key) and body.length == length]
    require(len(owned) == 1, f"{key} has {len(owned)} bodies of {length} bytes")
    part, within = PLACES[place]
    at, size = bodies.parts_of(owned[0])[part]
    flip(owned[0].path, at + within % size)
    return owned[0]


def owner_is(body, key):
    """Whether a body was written for the object of that key. No key is a part of another one."""
    return key.encode() in body.owner


def received(server, key, headers=None):
    """The status and what came of the content, also if the connection broke off."""
    one = client.Client(server)
    try:
        reply = one.begin("GET", key, headers=headers)
    except client.Unknown:
        return None, b"", False
    try:
        return reply.status, reply.read(), True
    except http.client.IncompleteRead as broken:
        return reply.status, broken.partial, False
    except ConnectionError:
        return reply.status, b"", False
    finally:
        one.close()


def never_served(server, objects, kind, place, key):
    """Reads the object in all ways. Gives whether a whole content came."""
    right = objects.contents[key]
    status, got, is_whole = received(server, key)
    if status == 200:
        require(right.startswith(got), f"{kind}, {place}: wrong bytes of {key} were served")
    is_served = status == 200 and is_whole and len(got) == len(right)
    require(is_served or status != 200 or not is_whole, f"{kind}, {place}: {key} came cut off as if it were whole")
    require(status in (200, 500, None), f"{kind}, {place}: GET of {key} got {status}")
    if (kind, place) not in READABLE:
        require(not is_served, f"{kind}, {place}: {key} was served although it is damaged")
    for begin in (0, len(right) // 2, len(right) - 100):
        status, got, is_whole = received(server, key, {"range": f"bytes={begin}-{begin + 99}"})
        if status == 206 and is_whole:
            require(got == right[begin : begin + 100], f"{kind}, {place}: a wrong range of {key} was served")
    # Nor does damage go on into copies.
    copy = f"copy-of-{key}"
    one = client.Client(server)
    try:
        one.ask("PUT", copy, headers={"x-amz-copy-source": f"/proofs/{key}"})
    except client.Unknown:
        pass
    status, got, is_whole = received(server, copy)
    if status == 200:
        require(is_whole and got == right, f"{kind}, {place}: the copy of {key} has another content")
        require(is_served, f"{kind}, {place}: {key} was copied although it is damaged")
    return is_served


def is_reported(log, key, body, place):
    """Whether the scrub names what is damaged: the object, or the body where the object's name is not readable."""
    said = rf"the body {re.escape(body.name)} is" if place in ("header", "owner") else rf'key="{re.escape(key)}"\s'
    return re.search(rf"ERROR an object is damaged on the disk [^\n]*{said}", log)


def read_is_reported(server, begin, body):
    """Waits until the log names the body whose reading failed. The scrub of that day names the object."""
    said = re.compile(rf"ERROR [^\n]*body {re.escape(body.name)}\s")
    wait_until(f"the log names the body {body.name}", lambda: said.search(server.log(begin) + "\n"), REPORT_TIMEOUT_S)


def damaged_while_stopped(server, seed):
    """Each kind and each place. The node is stopped while the disk changes bytes."""
    objects = Objects(server, seed)
    cases = []
    for kind in KINDS:
        for place in PLACES:
            key = f"object-{kind}-{place}-end".replace(" ", "-")
            cases.append((kind, place, key, objects.put(kind, key)))
    objects.client.done("PUT", "whole", body=b"w" * SMALL_BYTES)
    server.stop()
    found = bodies.all_of(server.data)
    planted = [plant(found, key, length, place) for _, place, key, length in cases]
    begin = server.log_path.stat().st_size
    server.start()
    objects.client.close()
    # The scrub that follows a start finds all, before anybody reads them.
    def unreported():
        log = server.log(begin)
        every = zip(cases, planted)
        return [f"not reported: {key}" for (_, place, key, _), body in every if not is_reported(log, key, body, place)]

    with contextlib.suppress(Failed):
        wait_until("the log names all that is damaged", lambda: not unreported(), REPORT_TIMEOUT_S)
    problems = unreported()
    for key, (upload, etags) in objects.uploads.items():
        objects.client.complete(key, upload, etags)
    served = 0
    for kind, place, key, _ in cases:
        try:
            served += never_served(server, objects, kind, place, key)
        except Failed as error:
            problems.append(str(error))
    require(not problems, "\n".join(problems))
    require(objects.client.done("GET", "whole").body == b"w" * SMALL_BYTES, "an object beside them is another one")
    return len(cases), served


def damaged_while_it_runs(server, seed):
    """The disk changes bytes of a running node: clients and functions get none of them, and the log names the body."""
    objects = Objects(server, seed + 1)
    cases = []
    for kind in KINDS[:4]:
        for place in ("first block", "last byte", "table"):
            key = f"running-{kind}-{place}-end".replace(" ", "-")
            cases.append((kind, place, key, objects.put(kind, key)))
    server.stop()
    found = bodies.all_of(server.data)
    server.start()
    objects.client.close()
    calls = Calls(server)
    for kind, place, key, length in cases:
        if len(objects.contents[key]) <= 4 << 20:
            status, got = calls.call("reading", "reader", "read", key)
            require(status == 200, f"a function does not read {key}: {status} {got}")
        body = plant(found, key, length, place)
        begin = server.log_path.stat().st_size
        never_served(server, objects, kind, place, key)
        read_is_reported(server, begin, body)
        status, got = calls.call("reading", "reader", "read", key)
        require(status != 200, f"a function reads the damaged {key}: {got}")
    return len(cases)


def damaged_files(server, seed):
    """Whole files: an index, a cut segment, a missing segment, a missing file."""
    objects = Objects(server, seed + 2)
    keys = [f"files-{number}-end" for number in range(4)]
    for key in keys:
        objects.put("segment", key)
    objects.put("file", "files-large-end")
    server.stop()
    found = bodies.all_of(server.data)
    segment = next(body.path for body in found if owner_is(body, keys[0]))
    index = segment.with_suffix(".idx")
    flip(index, 30)
    server.start()
    for key in keys:
        _, got, _ = received(server, key)
        require(got == objects.contents[key], f"{key} is lost with an index that can be made again")
    server.stop()
    whole = segment.read_bytes()
    for name, damage in {"cut": lambda: segment.write_bytes(whole[: len(whole) // 2]), "missing": segment.unlink}.items():
        damage()
        said = server.start_is_refused()
        require(segment.name in said, f"the segment is {name}, and the refused start does not name {segment.name}: {said}")
        segment.write_bytes(whole)
    large = next(body for body in bodies.in_files(server.data / "bodies") if owner_is(body, "files-large-end"))
    large.path.unlink()
    begin = server.log_path.stat().st_size
    server.start()
    status, _, _ = received(server, "files-large-end")
    require(status == 500, f"GET of an object whose file is missing got {status}")
    named = f'object="{{proofs}}files-large-end"'
    wait_until("the log names the object whose file is missing", lambda: named in server.log(begin), REPORT_TIMEOUT_S)
    for key in keys:
        _, got, _ = received(server, key)
        require(got == objects.contents[key], f"{key} is another one after its segment was put back")


def prove(arguments, folder):
    app = write_app(folder, "reading", CODE, "")
    with Node(arguments.binary, folder, ["--app", app]) as server:
        client.Client(server).done("PUT")
        server.command("bucket", "app", "proofs", "reading")
        count, served = damaged_while_stopped(server, arguments.seed)
        running = damaged_while_it_runs(server, arguments.seed)
        damaged_files(server, arguments.seed)
    return (
        f"{count} damaged objects reported by the scrub, {served} of them still served and right; {running} damaged "
        "under a running node reported when read; index, cut, missing segment and missing file as documented"
    )
