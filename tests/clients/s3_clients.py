"""Clients of S3 that others wrote, against the built server or any other one.

    s3_clients.py                                      the built server, every client that is there
    s3_clients.py --endpoint URL --users FILE          another server
    s3_clients.py --client rclone,awscli --largest 8   some clients, and files of at most 8 MB
    s3_clients.py --quick                              the part for `make test`: boto3, awscli and curl, without large files

Files of 0 B to 200 MB go up and come back the same. So do odd keys: Unicode, `..`, `//`, a slash at the end, 1,024 bytes, and
what XML must escape. Objects go up in parts, and curl reads a presigned URL. One bucket gets 100,000 keys, one upload 10,000
parts. A client that is not installed is skipped and told. scripts/check-s3-clients.sh installs what package registries have.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import uuid

import s3_endpoint

MB = 1 << 20
SIZES = [0, 1, 1000, 64 << 10, 5 * MB, 5 * MB + 1, 17 * MB, 200 * MB]
COMMAND_TIMEOUT_S = 300
LARGE_PART_BYTES = 8 * MB
QUICK_SIZES = [0, 1000, 5 * MB + 1]
QUICK_ODD_KEYS = 2
WRITERS = 4
MOST_KEYS = 100_000
MOST_PARTS = 10_000
# The most that one page of a list or one deletion of many objects has.
PAGE = 1000

# Keys that clients, URLs, XML and file systems handle in different ways.
ODD_KEYS = [
    "ünïcödé/日本語/🙂.txt",
    "a b+c%20d%2Fe",
    "dots/../up",
    "./here/.",
    "double//slash",
    "/leading",
    "folder/",
    "<xml attribute=\"'\">&amp;</xml>",
    "question?mark#hash;semicolon=a&b",
    "back\\slash^`{|}~[]",
    "tab\tand line\nend",
    "x" * 1024,
]

# What command-line clients take as a key: they make paths of `.`, `..`, `//` and line ends themselves.
PLAIN_ODD_KEYS = ["ünïcödé/日本語.txt", "a b+c%20d", "<xml>&amp;</xml>", "question?mark#hash;a=b&c", "y" * 200]


class Skipped(Exception):
    """A client that is not here."""


class Files:
    """Files with random bytes, made once and shared by all clients."""

    def __init__(self, folder, sizes, odd_keys):
        self.folder = folder
        self.sizes = sizes
        self.odd_keys = odd_keys
        generator = random.Random(18)
        self.paths = {}
        for size in self.sizes:
            path = folder / f"file-{size}"
            path.write_bytes(generator.randbytes(size))
            self.paths[size] = path


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(is_right, text):
    if not is_right:
        raise AssertionError(text)


def program(name):
    """Where a program is: beside this Python, in the folder TOOLS names, or on the path."""
    folders = [str(pathlib.Path(sys.executable).parent), os.environ.get("TOOLS", ""), os.environ["PATH"]]
    found = shutil.which(name, path=os.pathsep.join(folder for folder in folders if folder))
    if not found:
        raise Skipped(f"{name} is not installed")
    return found


def run(command, **options):
    """Runs a client's command and returns what it printed."""
    done = subprocess.run(command, capture_output=True, timeout=COMMAND_TIMEOUT_S, **options)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise AssertionError(f"{' '.join(str(word)[:60] for word in command)}: {said[-600:]}")
    return done.stdout


def boto3_client(server, **config):
    try:
        import boto3
        import botocore.config
    except ImportError:
        raise Skipped("boto3 is not installed") from None
    user = server.users[0]
    settings = botocore.config.Config(
        s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, signature_version="s3v4", **config)
    return boto3.client(
        "s3", endpoint_url=server.url, region_name="us-east-1", config=settings,
        aws_access_key_id=user["access_key"], aws_secret_access_key=user["secret_key"])


def all_keys(client, bucket):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 5})
    return [found["Key"] for page in pages for found in page.get("Contents", [])]


def test_boto3(server, bucket, files, folder):
    """The SDK: files, odd keys, listing, deleting many, copies, conditions, parts and ranges."""
    client = boto3_client(server)
    for size, path in files.paths.items():
        client.upload_file(str(path), bucket, f"file/{size}")
        client.download_file(bucket, f"file/{size}", str(folder / "back"))
        check(digest(folder / "back") == digest(path), f"the file of {size} bytes came back different")
        check(client.head_object(Bucket=bucket, Key=f"file/{size}")["ContentLength"] == size, "another length")
    largest = max(files.sizes)
    start, end = largest // 3, largest // 2
    got = client.get_object(Bucket=bucket, Key=f"file/{largest}", Range=f"bytes={start}-{end}")["Body"].read()
    check(got == files.paths[largest].read_bytes()[start:end + 1], "a range came back different")
    copied = client.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "file/1000"})
    check(copied["CopyObjectResult"]["ETag"] == client.head_object(Bucket=bucket, Key="copy")["ETag"], "another ETag")
    try:
        client.put_object(Bucket=bucket, Key="copy", Body=b"", IfNoneMatch="*")
        raise AssertionError("If-None-Match did not hold")
    except client.exceptions.ClientError as error:
        check(error.response["Error"]["Code"] == "PreconditionFailed", f"If-None-Match: {error}")
    keys = all_keys(client, bucket)
    check(keys == sorted(keys, key=str.encode) and len(keys) == len(files.sizes) + 1, f"listed {keys}")
    deleted = client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    check(len(deleted["Deleted"]) == len(keys) and not all_keys(client, bucket), "objects stay")


def test_boto3_odd_keys(server, bucket, files, folder):
    """Each odd key by itself, and all of them in a listing; a server may know no such key, so each failure is told."""
    client = boto3_client(server)
    wrong, stored = [], []
    for key in ODD_KEYS:
        body = f"body of {key}".encode()
        try:
            client.put_object(Bucket=bucket, Key=key, Body=body, Metadata={"number": str(len(key))})
            got = client.get_object(Bucket=bucket, Key=key)
            check(got["Body"].read() == body and got["Metadata"] == {"number": str(len(key))}, "came back different")
            stored.append(key)
        except Exception as error:  # noqa: BLE001  (the next key is tried whatever went wrong)
            wrong.append(f"{key[:40]!r}: {str(error)[:150]}")
    listed = all_keys(client, bucket)
    for key in stored:
        client.delete_object(Bucket=bucket, Key=key)
    check(not wrong, "; ".join(wrong))
    check(listed == sorted(stored, key=str.encode), f"listed {listed}")
    try:
        client.put_object(Bucket=bucket, Key="x" * 1025, Body=b"")
        raise AssertionError("a key of 1,025 bytes was taken")
    except client.exceptions.ClientError as error:
        check(error.response["Error"]["Code"] == "KeyTooLongError", f"a key of 1,025 bytes: {error}")


def test_boto3_parts(server, bucket, files, folder):
    """Parts in any order, one of them twice, one copied; a list of parts; an upload that is given up."""
    client = boto3_client(server)
    parts = [random.Random(number).randbytes(5 * MB + number) for number in (1, 2)] + [b"end"]
    client.put_object(Bucket=bucket, Key="source", Body=parts[1])
    upload = client.create_multipart_upload(Bucket=bucket, Key="whole", Metadata={"a": "b"})["UploadId"]
    which = {"Bucket": bucket, "Key": "whole", "UploadId": upload}
    client.upload_part(**which, PartNumber=1, Body=b"replaced")
    tags = {}
    for number in (3, 1):
        tags[number] = client.upload_part(**which, PartNumber=number, Body=parts[number - 1])["ETag"]
    copied = client.upload_part_copy(**which, PartNumber=2, CopySource={"Bucket": bucket, "Key": "source"})
    tags[2] = copied["CopyPartResult"]["ETag"]
    listed = client.list_parts(**which)["Parts"]
    check([(part["PartNumber"], part["Size"]) for part in listed] == [(1, len(parts[0])), (2, len(parts[1])), (3, 3)], str(listed))
    whole = {"Parts": [{"PartNumber": number, "ETag": tags[number]} for number in (1, 2, 3)]}
    client.complete_multipart_upload(**which, MultipartUpload=whole)
    got = client.get_object(Bucket=bucket, Key="whole")
    check(got["Body"].read() == b"".join(parts) and got["Metadata"] == {"a": "b"}, "came back different")
    check(got["ETag"].strip('"').endswith("-3"), got["ETag"])
    given_up = client.create_multipart_upload(Bucket=bucket, Key="given-up")["UploadId"]
    client.upload_part(Bucket=bucket, Key="given-up", UploadId=given_up, PartNumber=1, Body=b"x")
    client.abort_multipart_upload(Bucket=bucket, Key="given-up", UploadId=given_up)
    check(not client.list_multipart_uploads(Bucket=bucket).get("Uploads"), "an upload stays")
    for key in ("source", "whole"):
        client.delete_object(Bucket=bucket, Key=key)


def test_boto3_many_keys(server, bucket, files, folder):
    """A listing of more than two pages, with and without a delimiter."""
    client = boto3_client(server)
    names = [f"{number % 7}/{number:05}" for number in range(2200)]
    for name in names:
        client.put_object(Bucket=bucket, Key=name, Body=b"")
    pages = client.get_paginator("list_objects_v2")
    found = [item["Key"] for page in pages.paginate(Bucket=bucket) for item in page["Contents"]]
    check(found == sorted(names), f"{len(found)} of {len(names)} keys are listed")
    groups = [group["Prefix"] for page in pages.paginate(Bucket=bucket, Delimiter="/") for group in page["CommonPrefixes"]]
    check(groups == [f"{group}/" for group in range(7)], f"groups {groups}")
    for start in range(0, len(names), 1000):
        some = [{"Key": name} for name in names[start:start + 1000]]
        client.delete_objects(Bucket=bucket, Delete={"Objects": some, "Quiet": True})
    check(not all_keys(client, bucket), "objects stay")


def tell(text):
    print(f"    {text}", flush=True)


@contextlib.contextmanager
def timed(what, count):
    """Tells how long a block took. The time is for people; no test depends on it."""
    started = time.monotonic()
    yield
    seconds = time.monotonic() - started
    tell(f"{what}: {count:,} in {seconds:.1f} s, {count / seconds:,.0f}/s")


def by_many(function, items):
    """Calls a function with each item, some at the same time; raises what one of them raised."""
    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(function, items, chunksize=100))


def test_boto3_most_keys(server, bucket, files, folder):
    """100,000 keys in one bucket: listed wholly and in order, by a delimiter, from the middle, and deleted by batches."""
    client = boto3_client(server)
    # The order of the bytes is not the order of the numbers, and keys beyond ASCII come last.
    names = [f"{number % 997}/{'é' if number % 10 == 0 else ''}{number}" for number in range(MOST_KEYS)]
    with timed("puts", MOST_KEYS):
        by_many(lambda name: client.put_object(Bucket=bucket, Key=name, Body=name.encode()), names)
    names.sort(key=str.encode)
    pages = client.get_paginator("list_objects_v2")
    with timed("listed", MOST_KEYS):
        found = [item for page in pages.paginate(Bucket=bucket) for item in page["Contents"]]
    check([item["Key"] for item in found] == names, f"{len(found)} keys are listed, or in another order")
    check(all(item["Size"] == len(item["Key"].encode()) for item in found), "a size is listed wrong")
    check_groups(client, bucket, names)
    middle = names[MOST_KEYS // 2]
    page = client.list_objects_v2(Bucket=bucket, StartAfter=middle)
    check([item["Key"] for item in page["Contents"]] == names[MOST_KEYS // 2 + 1:][:PAGE], "another page from the middle")
    batches = [names[start:start + PAGE] for start in range(0, MOST_KEYS, PAGE)]
    with timed("deleted", MOST_KEYS):
        for batch in batches:
            some = [{"Key": name} for name in batch]
            deleted = client.delete_objects(Bucket=bucket, Delete={"Objects": some})
            check([item["Key"] for item in deleted["Deleted"]] == batch and "Errors" not in deleted, "another deletion")
    check(not all_keys(client, bucket), "objects stay")


def check_groups(client, bucket, names):
    """A delimiter makes one group of each folder; a prefix and a delimiter list one folder's keys."""
    counts = collections.Counter(name.split("/")[0] + "/" for name in names)
    pages = client.get_paginator("list_objects_v2")
    with timed("groups", len(counts)):
        found = [group["Prefix"] for page in pages.paginate(Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": 100})
                 for group in page["CommonPrefixes"]]
    check(found == sorted(counts), f"{len(found)} of {len(counts)} groups are listed, or in another order")
    for group in found[::100]:
        inside = client.list_objects_v2(Bucket=bucket, Prefix=group, Delimiter="/")
        check(inside["KeyCount"] == counts[group] and "CommonPrefixes" not in inside, f"{group} has other keys")


def test_boto3_most_parts(server, bucket, files, folder):
    """10,000 parts of one upload, listed in pages. Of a byte each, because 10,000 of the least size would be 50 GB: the upload
    cannot complete, and says so. Aborting it leaves nothing."""
    client = boto3_client(server)
    upload = client.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
    which = {"Bucket": bucket, "Key": "parts", "UploadId": upload}
    numbers = list(range(1, MOST_PARTS + 1))
    random.Random(18).shuffle(numbers)
    with timed("parts", MOST_PARTS):
        put = by_many(lambda number: client.upload_part(**which, PartNumber=number, Body=bytes([number % 251])), numbers)
    tags = dict(zip(numbers, (answer["ETag"] for answer in put)))
    refused(client, "InvalidArgument", lambda: client.upload_part(**which, PartNumber=MOST_PARTS + 1, Body=b"x"))
    wanted = [(number, 1, tags[number]) for number in range(1, MOST_PARTS + 1)]
    for size in (PAGE, 777):
        with timed(f"parts listed in pages of {size}", MOST_PARTS):
            pages = list(client.get_paginator("list_parts").paginate(**which, PaginationConfig={"PageSize": size}))
        found = [(part["PartNumber"], part["Size"], part["ETag"]) for page in pages for part in page["Parts"]]
        check(found == wanted, f"{len(found)} parts are listed, or others")
        check([len(page["Parts"]) for page in pages[:-1]] == [size] * (MOST_PARTS // size - (MOST_PARTS % size == 0)),
              "pages of another size")
    whole = {"Parts": [{"PartNumber": number, "ETag": tags[number]} for number in range(1, MOST_PARTS + 1)]}
    refused(client, "EntityTooSmall", lambda: client.complete_multipart_upload(**which, MultipartUpload=whole))
    client.abort_multipart_upload(**which)
    refused(client, "NoSuchUpload", lambda: client.list_parts(**which))
    check(not client.list_multipart_uploads(Bucket=bucket).get("Uploads"), "the upload stays")


def refused(client, code, call):
    """The call is refused with this code."""
    try:
        call()
    except client.exceptions.ClientError as error:
        check(error.response["Error"]["Code"] == code, f"{code} was wanted: {error}")
    else:
        raise AssertionError(f"{code} was wanted, and it was done")


def test_presigned(server, bucket, files, folder):
    """curl reads and writes by presigned URLs; a changed or late one is refused."""
    client, curl = boto3_client(server), program("curl")
    key = "presigned/ü &+.txt"
    put = client.generate_presigned_url("put_object", {"Bucket": bucket, "Key": key}, ExpiresIn=60)
    run([curl, "-sf", "-T", files.paths[1000], put])
    get = client.generate_presigned_url(
        "get_object", {"Bucket": bucket, "Key": key, "ResponseContentDisposition": "attachment"}, ExpiresIn=60)
    check(run([curl, "-sf", get]) == files.paths[1000].read_bytes(), "came back different")
    head = run([curl, "-sf", "-D", "-", "-o", os.devnull, get]).decode().lower()
    check("content-disposition: attachment" in head, head)
    for wrong in (get.replace("attachment", "inline"), get.replace("X-Amz-Expires=60", "X-Amz-Expires=61")):
        status = run([curl, "-s", "-o", os.devnull, "-w", "%{http_code}", wrong])
        check(status == b"403", f"a changed URL gave {status}")
    client.delete_object(Bucket=bucket, Key=key)


def round_trip(files, folder, up, down, remove):
    """Files of all sizes and odd keys through the functions of a client."""
    pairs = [(f"size/{size}", path) for size, path in files.paths.items()]
    pairs += [(f"odd/{key}", files.paths[1000]) for key in files.odd_keys]
    for key, path in pairs:
        back = folder / "back"
        back.unlink(missing_ok=True)
        up(path, key)
        down(key, back)
        check(digest(back) == digest(path), f"{key[:60]!r} came back different")
        remove(key)


def test_awscli(server, bucket, files, folder):
    aws, user = program("aws"), server.users[0]
    environment = {
        **os.environ, "AWS_ACCESS_KEY_ID": user["access_key"], "AWS_SECRET_ACCESS_KEY": user["secret_key"],
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": os.devnull, "AWS_MAX_ATTEMPTS": "1",
    }

    def call(*words):
        return run([aws, "--endpoint-url", server.url, "s3", *words], env=environment)

    round_trip(files, folder,
               lambda path, key: call("cp", "--only-show-errors", path, f"s3://{bucket}/{key}"),
               lambda key, path: call("cp", "--only-show-errors", f"s3://{bucket}/{key}", path),
               lambda key: call("rm", "--only-show-errors", f"s3://{bucket}/{key}"))
    tree = make_tree(folder / "tree", files)
    call("sync", "--only-show-errors", tree, f"s3://{bucket}/tree")
    call("sync", "--only-show-errors", f"s3://{bucket}/tree", folder / "tree-back")
    check_tree(tree, folder / "tree-back")
    check(call("sync", tree, f"s3://{bucket}/tree") == b"", "a second sync sent something")
    check(call("ls", "--recursive", f"s3://{bucket}/tree").count(b"\n") == 3, "ls shows other files")
    call("rm", "--only-show-errors", "--recursive", f"s3://{bucket}/tree")


def make_tree(folder, files):
    """A folder with files in folders."""
    for name in ("a.txt", "inner/b ü.txt", "inner/deep/c.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(files.paths[1000], path)
    return folder


def check_tree(wanted, found):
    names = lambda folder: sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())  # noqa: E731
    check(names(wanted) == names(found), f"{names(found)} came back")
    for name in names(wanted):
        check(digest(wanted / name) == digest(found / name), f"{name} came back different")


def test_s3cmd(server, bucket, files, folder):
    s3cmd, user = program("s3cmd"), server.users[0]
    config = folder / "s3cmd"
    host = server.url.split("://", 1)[1]
    config.write_text(
        f"[default]\naccess_key = {user['access_key']}\nsecret_key = {user['secret_key']}\nhost_base = {host}\n"
        f"host_bucket = {host}\nuse_https = {server.is_secure}\nsignature_v2 = False\nbucket_location = us-east-1\n")

    def call(*words):
        return run([s3cmd, "-c", config, "--no-progress", "--quiet", *words])

    round_trip(files, folder,
               lambda path, key: call("put", path, f"s3://{bucket}/{key}"),
               lambda key, path: call("get", "--force", f"s3://{bucket}/{key}", path),
               lambda key: call("del", f"s3://{bucket}/{key}"))
    tree = make_tree(folder / "tree", files)
    call("sync", f"{tree}/", f"s3://{bucket}/tree/")
    call("sync", f"s3://{bucket}/tree/", f"{folder / 'tree-back'}/")
    check_tree(tree, folder / "tree-back")
    call("del", "--recursive", "--force", f"s3://{bucket}/tree/")


def test_rclone(server, bucket, files, folder):
    rclone, user = program("rclone"), server.users[0]
    environment = {
        **os.environ, "RCLONE_CONFIG": os.devnull, "RCLONE_CONFIG_IT_TYPE": "s3", "RCLONE_CONFIG_IT_PROVIDER": "Other",
        "RCLONE_CONFIG_IT_ACCESS_KEY_ID": user["access_key"], "RCLONE_CONFIG_IT_SECRET_ACCESS_KEY": user["secret_key"],
        "RCLONE_CONFIG_IT_ENDPOINT": server.url, "RCLONE_CONFIG_IT_REGION": "us-east-1",
        "RCLONE_S3_UPLOAD_CUTOFF": "8Mi", "RCLONE_S3_CHUNK_SIZE": str(LARGE_PART_BYTES),
    }

    def call(*words):
        return run([rclone, "--retries", "1", "--low-level-retries", "1", *words], env=environment)

    round_trip(files, folder,
               lambda path, key: call("copyto", path, f"it:{bucket}/{key}"),
               lambda key, path: call("copyto", f"it:{bucket}/{key}", path),
               lambda key: call("deletefile", f"it:{bucket}/{key}"))
    tree = make_tree(folder / "tree", files)
    call("sync", tree, f"it:{bucket}/tree")
    call("check", "--download", tree, f"it:{bucket}/tree")
    call("move", f"it:{bucket}/tree", f"it:{bucket}/moved")
    call("copy", f"it:{bucket}/moved", folder / "tree-back")
    check_tree(tree, folder / "tree-back")
    call("purge", f"it:{bucket}/moved")


def test_mc(server, bucket, files, folder):
    mc, user = program("mc"), server.users[0]
    call = lambda *words: run([mc, "--config-dir", folder / "mc", "--quiet", *words])  # noqa: E731
    call("alias", "set", "it", server.url, user["access_key"], user["secret_key"], "--api", "S3v4", "--path", "on")
    round_trip(files, folder,
               lambda path, key: call("cp", path, f"it/{bucket}/{key}"),
               lambda key, path: call("cp", f"it/{bucket}/{key}", path),
               lambda key: call("rm", f"it/{bucket}/{key}"))
    tree = make_tree(folder / "tree", files)
    call("mirror", tree, f"it/{bucket}/tree")
    call("mirror", f"it/{bucket}/tree", folder / "tree-back")
    check_tree(tree, folder / "tree-back")
    check(b"c.txt" in call("find", f"it/{bucket}/tree", "--name", "c.txt"), "find finds nothing")
    call("rm", "--recursive", "--force", f"it/{bucket}/tree")


def test_minio_go(server, bucket, files, folder):
    """minio-go, by the small program in s3_minio_go: it streams bodies whose length it does not know."""
    client, user = program("s3-minio-go"), server.users[0]
    host = server.url.split("://", 1)[1]
    environment = {**os.environ, "ACCESS_KEY": user["access_key"], "SECRET_KEY": user["secret_key"]}
    for size, path in files.paths.items():
        run([client, host, bucket, f"go/{size}", path], env=environment)


TESTS = {
    "boto3": test_boto3, "boto3-odd-keys": test_boto3_odd_keys, "boto3-parts": test_boto3_parts,
    "boto3-many-keys": test_boto3_many_keys, "boto3-most-keys": test_boto3_most_keys,
    "boto3-most-parts": test_boto3_most_parts, "presigned": test_presigned, "awscli": test_awscli, "s3cmd": test_s3cmd,
    "rclone": test_rclone, "mc": test_mc, "minio-go": test_minio_go,
}

# What `make test` runs: what one list of packages installs, and what takes a minute at most on two busy cores.
QUICK = ["boto3", "boto3-odd-keys", "boto3-parts", "boto3-many-keys", "presigned", "awscli"]


def run_test(name, server, files):
    """Runs one test in a bucket of its own; returns what went wrong."""
    bucket = f"clients-{uuid.uuid4().hex[:12]}"
    maker = boto3_client(server)
    maker.create_bucket(Bucket=bucket)
    with tempfile.TemporaryDirectory(prefix="millrace-s3-client-") as folder:
        try:
            TESTS[name](server, bucket, files, pathlib.Path(folder))
            maker.delete_bucket(Bucket=bucket)
            return None
        except Skipped:
            raise
        except Exception as error:  # noqa: BLE001  (the next client is tried whatever went wrong)
            return f"{type(error).__name__}: {error}"
        finally:
            with contextlib.suppress(Exception):
                for key in all_keys(maker, bucket):
                    maker.delete_object(Bucket=bucket, Key=key)
                maker.delete_bucket(Bucket=bucket)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    s3_endpoint.add_arguments(parser)
    parser.add_argument("--client", default=",".join(TESTS), help="some of " + ", ".join(TESTS))
    parser.add_argument("--largest", type=int, default=200, metavar="MB", help="the largest file (200)")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}, with few files")
    arguments = parser.parse_args()
    names = QUICK if arguments.quick else arguments.client.split(",")
    sizes = QUICK_SIZES if arguments.quick else [size for size in SIZES if size <= arguments.largest * MB]
    odd_keys = PLAIN_ODD_KEYS[:QUICK_ODD_KEYS] if arguments.quick else PLAIN_ODD_KEYS
    if unknown := [name for name in names if name not in TESTS]:
        raise SystemExit(f"there is no client {unknown[0]!r}")
    failed, skipped = [], []
    with tempfile.TemporaryDirectory(prefix="millrace-s3-files-") as folder, s3_endpoint.endpoint(arguments) as server:
        files = Files(pathlib.Path(folder), sizes, odd_keys)
        for name in names:
            started = time.monotonic()
            try:
                wrong = run_test(name, server, files)
            except Skipped as reason:
                skipped.append(f"skipped: S3 client {name}: {reason}")
                continue
            took = f"{time.monotonic() - started:.1f} s"
            print(f"{name}: {f'ok, {took}' if wrong is None else f'FAILED after {took}: {wrong}'}", flush=True)
            failed += [name] if wrong else []
    for line in skipped:
        print(line, file=sys.stderr)
    with open(os.environ.get("MILLRACE_TEST_SKIPPED") or os.devnull, "a") as file:
        file.writelines(f"{line}\n" for line in skipped)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
