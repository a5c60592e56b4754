"""Through `kill -9` under load an object is wholly the old one or wholly the new one, and nothing is lost or left over.

Each writer has keys of its own, so it knows what each may hold: one content, or two while a request has no answer. The
content's SHA-256 stands in the object's metadata. At the end the bodies on the disk are exactly those that the buckets count.
"""

import hashlib
import random
import threading
import time

import bodies
import client
from node import Node, require

KILLS = 50
WRITERS = 8
KEYS = 6
PART_BYTES = 5 << 20
LARGEST_BYTES = 20_000_000
# All objects are compared after so many kills, a few of them after each.
ALL_EVERY = 10
SOME = 4
SETTLE_TIMEOUT_S = 120
# Headers, owners, checksums and indexes.
OVERHEAD_BYTES = 64 << 10
NONE = "no object"


class Content:
    """Random bytes that no other content shares, made without much work."""

    POOL = random.Random(5).randbytes(LARGEST_BYTES + (1 << 20))

    def __init__(self, generator, size, name):
        at = generator.randrange(1 << 20)
        self.bytes = (name.encode() + self.POOL[at : at + size])[:size]
        self.sha256 = hashlib.sha256(self.bytes).hexdigest()


def a_size(generator):
    """Contents in the entity, in segments and in files of their own, and the sizes where that changes."""
    kind = generator.random()
    if kind < 0.1:
        return generator.choice([0, 1, 8191, 8192, 8193, 4 << 20, (4 << 20) + 1])
    if kind < 0.4:
        return generator.randrange(8192)
    if kind < 0.75:
        return generator.randrange(8192, 256 << 10)
    if kind < 0.93:
        return generator.randrange(256 << 10, 5 << 20)
    return generator.randrange(5 << 20, LARGEST_BYTES + 1)


class Writer:
    """Changes its keys until a request has no answer."""

    def __init__(self, server, number, seed):
        self.client = client.Client(server)
        self.number, self.generator = number, random.Random(f"{seed} {number}")
        self.possible = {f"{number}/{key}": {NONE} for key in range(KEYS)}
        self.sizes = {}
        self.done, self.unknown = 0, 0

    def run(self):
        """Until the node is killed."""
        ways = [self.put] * 10 + [self.parts] * 2 + [self.copy] * 4 + [self.delete] * 3
        try:
            while True:
                self.generator.choice(ways)(self.generator.choice(sorted(self.possible)))
        except client.Unknown:
            self.client.close()

    def change(self, key, new, action):
        """Does what makes the key hold `new`. Until the answer is there, the old content is possible as well."""
        self.possible[key] = self.possible[key] | {new}
        self.unknown += 1
        action()
        self.possible[key] = {new}
        self.unknown -= 1
        self.done += 1

    def content(self, size):
        content = Content(self.generator, size, f"writer {self.number}, {self.done}, {self.generator.random()} ")
        self.sizes[content.sha256] = size
        return content

    def put(self, key):
        content = self.content(a_size(self.generator))
        headers = {"x-amz-meta-sha256": content.sha256}
        self.change(key, content.sha256, lambda: self.client.done("PUT", key, headers=headers, body=content.bytes))

    def parts(self, key):
        """An upload of one to four parts. Sometimes it stays incomplete."""
        content = self.content(self.generator.randrange(1, LARGEST_BYTES + 1))
        upload = self.client.begin_upload(key, {"x-amz-meta-sha256": content.sha256})
        pieces = [content.bytes[at : at + PART_BYTES] for at in range(0, len(content.bytes), PART_BYTES)]
        etags = [self.client.put_part(key, upload, number, piece) for number, piece in enumerate(pieces, 1)]
        if self.generator.random() < 0.8:
            self.change(key, content.sha256, lambda: self.client.complete(key, upload, etags))

    def copy(self, key):
        sources = sorted(other for other, contents in self.possible.items() if len(contents) == 1 and NONE not in contents)
        if sources:
            source = self.generator.choice([other for other in sources if other != key] or [None])
            if source:
                headers = {"x-amz-copy-source": f"/proofs/{source}"}
                (sha256,) = self.possible[source]
                self.change(key, sha256, lambda: self.copied(key, headers))

    def copied(self, key, headers):
        answer = self.client.done("PUT", key, headers=headers)
        if b"<Error>" in answer.body:
            raise client.Unknown(f"copying to {key}: {answer.body[:300]!r}")

    def delete(self, key):
        self.change(key, NONE, lambda: self.client.done("DELETE", key))

    def look(self, key):
        """Reads a key, and requires one of the contents that are possible. From then on it is the only one."""
        answer = self.client.ask("GET", key)
        possible = self.possible[key]
        if answer.status == 404:
            found = NONE
        else:
            require(answer.status == 200, f"GET of {key}: {answer.status} {answer.body[:200]!r}")
            found = hashlib.sha256(answer.body).hexdigest()
            said = answer.headers["x-amz-meta-sha256"]
            require(found == said, f"{key} holds {len(answer.body)} bytes of {found}, but its metadata says {said}")
        wanted = " or ".join(sorted(possible))
        require(found in possible, f"{key} holds {found}; possible are {wanted}, of {[self.sizes.get(p) for p in possible]} bytes")
        self.possible[key] = {found}

    def look_after_kill(self, everything):
        """Settles what has no answer, and looks at some or all of the others."""
        uncertain = [key for key, contents in self.possible.items() if len(contents) > 1]
        certain = [key for key in self.possible if key not in uncertain]
        for key in uncertain + (certain if everything else self.generator.sample(certain, SOME)):
            self.look(key)


def all_at_once(writers, work):
    """Runs `work` of all writers side by side, and gives a function that waits for them."""
    failures = []

    def guarded(writer):
        try:
            work(writer)
        except Exception as error:  # It fails the proof, not only this thread.
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()

    def wait():
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    return wait


def abort_uploads(one):
    """Gives up all uploads that were left, and says how many."""
    count = 0
    while True:
        answer = one.done("GET", "", "uploads=")
        keys, uploads = answer.texts_of("Key"), answer.texts_of("UploadId")
        if not uploads:
            return count
        for key, upload in zip(keys, uploads):
            one.done("DELETE", key, f"uploadId={upload}")
            count += 1


def nothing_is_left_over(server, sizes):
    """After orderly stops the bodies on the disk are those of the objects, byte for byte. Gives what the disk holds."""
    wanted = sum(size for size in sizes if size > bodies.INLINE_BYTES)
    found = {}

    def is_settled():
        server.stop()
        found["bytes"] = sum(body.length for body in bodies.all_of(server.data))
        found["disk bytes"] = bodies.disk_bytes(server.data)
        server.start()
        # A segment is copied when less than a third of it is left.
        if found["bytes"] == wanted and found["disk bytes"] <= 3 * wanted + OVERHEAD_BYTES:
            return True
        # What nothing refers to is freed soon after the start that follows an orderly stop.
        time.sleep(1)
        return False

    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while not is_settled():
        require(time.monotonic() < deadline, f"the disk holds {found} of bodies, the objects have {wanted} bytes")
    return wanted, found["disk bytes"]


def under_kills(server, writers, kills, wait_s):
    """Kills the server so many times while the writers write, and has them look at it after each."""
    for kill in range(1, kills + 1):
        wait = all_at_once(writers, lambda writer: writer.run())
        # Not a wait for anything: the kill comes at another place each time.
        time.sleep(wait_s())
        server.kill()
        wait()
        server.start()
        everything = kill % ALL_EVERY == 0 or kill == kills
        all_at_once(writers, lambda writer: writer.look_after_kill(everything))()


def prove(arguments, folder):
    kills = arguments.kills or KILLS
    generator = random.Random(arguments.seed)
    with Node(arguments.binary, folder) as server:
        first = client.Client(server)
        first.done("PUT")
        server.spread(arguments.slices)
        writers = [Writer(server, number, arguments.seed) for number in range(WRITERS)]
        under_kills(server, writers, kills, lambda: generator.uniform(0.1, 1.5))
        aborted = abort_uploads(client.Client(server))
        sizes = [writer.sizes[sha256] for writer in writers for (sha256,) in writer.possible.values() if sha256 != NONE]
        usage = server.command("bucket", "usage", "proofs")
        counted = (usage["objects"], usage["size_bytes"])
        require(counted == (len(sizes), sum(sizes)), f"the bucket counts {counted}, there are {len(sizes)}, {sum(sizes)}")
        wanted, taken = nothing_is_left_over(server, sizes)
        last = client.Client(server)
        for writer in writers:
            last.delete_all(sorted(writer.possible))
        _, left = nothing_is_left_over(server, [])
        done, unknown = sum(writer.done for writer in writers), sum(writer.unknown for writer in writers)
        require(done >= 5 * kills and unknown >= kills / 2, f"too little was under way: {done} done, {unknown} cut off")
    return (
        f"{kills} kills, {done} changes acknowledged, {unknown} cut off: each object was the old or the new one; "
        f"{len(sizes)} objects with {wanted} bytes of bodies took {taken} bytes of disk, {aborted} uploads aborted; "
        f"{left} bytes when all were gone"
    )
