"""Through `kill -9` under load a bucket with versions keeps each acknowledged version, and no more than was asked for.

Writers put versions and markers, and delete some of them for good. Afterwards the list of versions has what was acknowledged.
A request without an answer may have left one version of its content, or taken one away.
"""

import hashlib
import random
import xml.etree.ElementTree as xml

import client
from kills import WRITERS, Content, a_size, all_at_once, nothing_is_left_over, under_kills
from node import Node, require

KILLS = 25
KEYS = 3
MARKER = "a marker"
VERSIONING = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


class Writer:
    """Changes versions of its keys until a request has no answer."""

    def __init__(self, server, number, seed):
        self.client = client.Client(server)
        self.number, self.generator = number, random.Random(f"{seed} {number}")
        # Key and version → the content's SHA-256, or that it is a marker.
        self.acknowledged = {}
        # Of requests without an answer: key and content, of which one version may be there; key and version that may be gone.
        self.perhaps_made, self.perhaps_gone = [], {}
        self.removed = set()
        self.counter = 0

    def run(self):
        """Until the node is killed."""
        ways = [self.put] * 6 + [self.mark] * 2 + [self.remove] * 3
        try:
            while True:
                self.generator.choice(ways)(f"{self.number}/{self.generator.randrange(KEYS)}")
        except client.Unknown:
            self.client.close()

    def make(self, key, what, *arguments, **named):
        """Sends a request that makes a version, and remembers its id."""
        self.perhaps_made.append((key, what))
        answer = self.client.done(*arguments, **named)
        self.acknowledged[key, answer.headers["x-amz-version-id"]] = what
        self.perhaps_made.pop()

    def put(self, key):
        self.counter += 1
        content = Content(self.generator, a_size(self.generator), f"writer {self.number}, {self.counter} ")
        headers = {"x-amz-meta-sha256": content.sha256}
        self.make(key, content.sha256, "PUT", key, headers=headers, body=content.bytes)

    def mark(self, key):
        self.make(key, MARKER, "DELETE", key)

    def remove(self, _):
        """Deletes a version or a marker for good."""
        if len(self.acknowledged) > 2:
            chosen = self.generator.choice(sorted(self.acknowledged))
            key, version = chosen
            self.perhaps_gone[chosen] = self.acknowledged.pop(chosen)
            self.client.done("DELETE", key, f"versionId={version}")
            del self.perhaps_gone[chosen]
            self.removed.add(chosen)

    def look_at(self, key, version, what):
        """Reads one version, and requires its content."""
        answer = self.client.ask("GET", key, f"versionId={version}")
        if what == MARKER:
            require(answer.status == 405, f"GET of the marker {version} of {key} got {answer.status}")
            return
        require(answer.status == 200, f"{version} of {key} was acknowledged, and GET got {answer.status}")
        found, said = hashlib.sha256(answer.body).hexdigest(), answer.headers["x-amz-meta-sha256"]
        require(found == said == what, f"{version} of {key} holds {found}, says {said}, and was put as {what}")

    def look_after_kill(self, everything):
        """Reads all that was acknowledged, or a few."""
        chosen = sorted(self.acknowledged)
        if not everything:
            chosen = self.generator.sample(chosen, min(4, len(chosen)))
        for key, version in chosen:
            self.look_at(key, version, self.acknowledged[key, version])

    def compare(self, listed):
        """Requires that the list has what was acknowledged, and of the rest only what requests without an answer may have left."""
        own = {name: size for name, size in listed.items() if name[0].startswith(f"{self.number}/")}
        lost = self.acknowledged.keys() - own.keys()
        require(not lost, f"acknowledged, and not in the list: {sorted(lost)[:5]}")
        back = self.removed & own.keys()
        require(not back, f"deleted for good, and in the list again: {sorted(back)[:5]}")
        unanswered = list(self.perhaps_made)
        for key, version in own.keys() - self.acknowledged.keys():
            what = self.perhaps_gone.get((key, version))
            if what is None:
                answer = self.client.ask("GET", key, f"versionId={version}")
                what = MARKER if answer.status == 405 else answer.headers["x-amz-meta-sha256"]
                require((key, what) in unanswered, f"{version} of {key} is there, and nobody asked for it")
                unanswered.remove((key, what))
            self.look_at(key, version, what)


def listed(one):
    """All versions and markers: key and version → bytes, or `None` for a marker."""
    found, query = {}, "versions="
    while True:
        root = xml.fromstring(one.done("GET", "", query).body)
        entries = {}
        for element in root:
            fields = {field.tag.rsplit("}", 1)[-1]: field.text for field in element}
            kind = element.tag.rsplit("}", 1)[-1]
            if kind in ("Version", "DeleteMarker"):
                size = int(fields["Size"]) if kind == "Version" else None
                found[fields["Key"], fields["VersionId"]] = size
            else:
                entries[kind] = element.text
        if entries["IsTruncated"] != "true":
            return found
        query = f"key-marker={entries['NextKeyMarker'].replace('/', '%2F')}&version-id-marker={entries['NextVersionIdMarker']}&versions="


def prove(arguments, folder):
    kills = arguments.kills or KILLS
    generator = random.Random(arguments.seed)
    with Node(arguments.binary, folder) as server:
        first = client.Client(server)
        first.done("PUT")
        server.spread(arguments.slices)
        first.done("PUT", "", "versioning=", body=VERSIONING)
        writers = [Writer(server, number, arguments.seed) for number in range(WRITERS)]
        under_kills(server, writers, kills, lambda: generator.uniform(0.1, 1.0))
        found = listed(client.Client(server))
        all_at_once(writers, lambda writer: writer.compare(found))()
        sizes = [size for size in found.values() if size is not None]
        usage = server.command("bucket", "usage", "proofs")
        counted = (usage["objects"], usage["size_bytes"])
        require(counted == (len(sizes), sum(sizes)), f"the bucket counts {counted}, there are {len(sizes)}, {sum(sizes)}")
        wanted, taken = nothing_is_left_over(server, sizes)
        acknowledged = sum(len(writer.acknowledged) for writer in writers)
        removed = sum(len(writer.removed) for writer in writers)
        unknown = sum(len(writer.perhaps_made) + len(writer.perhaps_gone) for writer in writers)
        require(acknowledged >= 2 * kills and removed >= kills, f"too little was done: {acknowledged} kept, {removed} removed")
    return (
        f"{kills} kills: {acknowledged} versions and markers acknowledged and there, {removed} removed for good, "
        f"{unknown} requests without an answer, {len(found)} listed; {wanted} bytes of bodies took {taken} bytes of disk"
    )
