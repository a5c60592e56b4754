"""A notification's handler runs exactly once for what was acknowledged, over many kills.

Each key is written once: by a put, a copy, or an upload of parts. Some are then deleted, alone or with others. The handler
counts events in the entity of the object's key. A write without an answer is told once if the object is there, else never.
"""

import random
import threading
import time

import client
from node import Calls, Node, require, wait_until, write_app

KILLS = 100
WRITERS = 6
# Where the log has no news for so long, nothing more is on its way: what must not happen has had its time.
QUIET_S = 5

CODE = """
import { service, query } from "millrace";

export default service({
  told(ctx, event: any) {
    const kind = event.event.split(":")[1];
    ctx.set(kind, (ctx.get(kind) ?? 0) + 1);
  },
  counts: query((ctx) => [ctx.get("ObjectCreated") ?? 0, ctx.get("ObjectRemoved") ?? 0]),
});
"""
SETTINGS = '[objects]\nnotifications = ["proofs"]\n'
RULE = (
    "<NotificationConfiguration><CloudFunctionConfiguration>"
    "<CloudFunction>arn:millrace:function:telling:telling:told</CloudFunction>"
    "<Event>s3:ObjectCreated:*</Event><Event>s3:ObjectRemoved:*</Event>"
    "</CloudFunctionConfiguration></NotificationConfiguration>"
)


class Writer:
    """Writes and deletes keys of its own until a request has no answer."""

    def __init__(self, server, number, seed):
        self.client = client.Client(server)
        self.number, self.generator = number, random.Random(f"{seed} {number}")
        self.keys = 0
        # Keys by what is known of them.
        self.made, self.perhaps_made, self.deleted, self.perhaps_deleted = [], [], [], []

    def run(self):
        """Until the node is killed."""
        try:
            while True:
                if len(self.made) > 4 and self.generator.random() < 0.4:
                    self.delete()
                else:
                    self.make()
        except client.Unknown:
            self.client.close()

    def make(self):
        key = f"{self.number}/{self.keys}"
        self.keys += 1
        way = self.generator.choice(["put", "put", "put", "copy", "parts"])
        upload = etag = None
        if way == "parts":
            upload = self.client.begin_upload(key)
            etag = self.client.put_part(key, upload, 1, key.encode())
        self.perhaps_made.append(key)
        if way == "put":
            size = self.generator.choice([0, 10, 9000, 70_000])
            self.client.done("PUT", key, body=key.encode().ljust(size))
        elif way == "copy":
            self.client.done("PUT", key, headers={"x-amz-copy-source": "/proofs/first"})
        else:
            self.client.complete(key, upload, [etag])
        self.made.append(self.perhaps_made.pop())

    def delete(self):
        count = self.generator.choice([1, 1, 1, 4])
        chosen = [self.made.pop(self.generator.randrange(len(self.made))) for _ in range(count)]
        self.perhaps_deleted.extend(chosen)
        if count == 1:
            self.client.done("DELETE", chosen[0])
        else:
            self.client.delete_all(chosen)
        del self.perhaps_deleted[-count:]
        self.deleted.extend(chosen)


def load(server, writers, for_s):
    """Lets all write for a while, and kills the node in the middle of it."""
    failures = []

    def work(writer):
        try:
            writer.run()
        except Exception as error:  # It fails the proof, not only this thread.
            failures.append(error)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    # Not a wait for anything: the kill comes at another place each time.
    time.sleep(for_s)
    server.kill()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def check(server, writers):
    """Compares what the handler has counted with what is known."""
    calls, reader = Calls(server), client.Client(server)

    def counts(key):
        status, found = calls.call("telling", key, "counts")
        require(status == 200, f"the counts of {key}: {status} {found}")
        return found

    def told(key, wanted):
        wait_until(f"{key} is told {wanted}", lambda: counts(key) >= wanted)

    wanted = {}
    for writer in writers:
        for key in writer.made:
            wanted[key] = [1, 0]
        for key in writer.deleted:
            wanted[key] = [1, 1]
        for key in writer.perhaps_made:
            wanted[key] = [1, 0] if reader.ask("GET", key).status == 200 else [0, 0]
        for key in writer.perhaps_deleted:
            wanted[key] = [1, 0] if reader.ask("GET", key).status == 200 else [1, 1]
        for key in writer.made:
            require(reader.ask("HEAD", key).status == 200, f"{key} was acknowledged and is gone")
    for key, count in wanted.items():
        told(key, count)
    # Something that came twice would come by now.
    time.sleep(QUIET_S)
    for key, count in wanted.items():
        found = counts(key)
        require(found == count, f"{key} was told [made, removed] {found} times, not {count}")
    return len(wanted)


def prove(arguments, folder):
    kills = arguments.kills or KILLS
    generator = random.Random(arguments.seed)
    app = write_app(folder, "telling", CODE, SETTINGS)
    with Node(arguments.binary, folder, ["--app", app]) as server:
        first = client.Client(server)
        first.done("PUT")
        first.done("PUT", "first", body=b"copied by others")
        first.done("PUT", "", "notification=", body=RULE.encode())
        writers = [Writer(server, number, arguments.seed) for number in range(WRITERS)]
        for _ in range(kills):
            load(server, writers, generator.uniform(0.05, 0.5))
            server.start()
        total = check(server, writers)
        unknown = sum(len(writer.perhaps_made) + len(writer.perhaps_deleted) for writer in writers)
        made = sum(len(writer.made) + len(writer.deleted) for writer in writers)
        deleted = sum(len(writer.deleted) for writer in writers)
        require(made >= kills and deleted >= kills / 2, f"too little was written: {made} made, {deleted} deleted")
    return (
        f"{kills} kills, {total} keys: {made} writes and {deleted} deletions acknowledged and told once each, "
        f"{unknown} keys without an answer told as they are"
    )
