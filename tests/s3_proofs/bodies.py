"""The files of a stopped node's bodies, as docs/internals/objects.md describes them."""

import collections
import struct

BLOCK_BYTES = 64 << 10
HEADER_BYTES, FOOTER_BYTES, CRC_BYTES = 64, 32, 4
# Content of at most so many bytes is part of the object's entity, unless it is a part of an upload.
INLINE_BYTES = 8 << 10
_PLACE = struct.Struct("<HHIQQQ")

# `name` is how the log names the body.
Body = collections.namedtuple("Body", "name path at owner length")


def parts_of(body):
    """Name → offset and bytes of each part of a body, within its file."""
    owner = body.at + HEADER_BYTES
    data = owner + len(body.owner) + CRC_BYTES
    table = data + body.length
    footer = table + CRC_BYTES * -(-body.length // BLOCK_BYTES)
    return {
        "header": (body.at, HEADER_BYTES), "owner": (owner, len(body.owner)), "data": (data, body.length),
        "table": (table, footer - table), "footer": (footer, FOOTER_BYTES),
    }


def in_segments(folder):
    """The bodies that the indexes list. An orderly stop leaves an index beside each segment."""
    found = []
    for path in sorted((folder / "segments").glob("*.seg")):
        index = path.with_suffix(".idx").read_bytes()
        segment = path.read_bytes()
        (count,) = struct.unpack_from("<Q", index, 16)
        for place in range(count):
            shard, owner_bytes, _, number, at, length = _PLACE.unpack_from(index, 24 + 32 * place)
            owner = segment[at + HEADER_BYTES : at + HEADER_BYTES + owner_bytes]
            found.append(Body(f"{shard}/{number:x}", path, at, owner, length))
    return found


def in_files(folder):
    """The bodies with a file of their own."""
    found = []
    for path in sorted((folder / "files").iterdir()):
        shard, number = path.name.split("-")
        with path.open("rb") as file:
            (owner_bytes,) = struct.unpack_from("<H", file.read(HEADER_BYTES), 6)
            owner = file.read(owner_bytes)
            file.seek(-FOOTER_BYTES, 2)
            (length,) = struct.unpack_from("<Q", file.read(FOOTER_BYTES), 16)
        found.append(Body(f"{int(shard, 16)}/{int(number, 16):x}", path, 0, owner, length))
    return found


def all_of(data):
    """All bodies of a data directory."""
    folder = data / "bodies"
    return in_segments(folder) + in_files(folder)


def disk_bytes(data):
    """What the folder of bodies takes."""
    return sum(path.stat().st_size for path in (data / "bodies").rglob("*") if path.is_file())
