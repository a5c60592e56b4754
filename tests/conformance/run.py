#!/usr/bin/env python3
"""Runs the S3 compatibility suite of ceph/s3-tests and compares its failures with `expected-failures.txt`.

    tests/conformance/run.py                        the core selection against the built server
    tests/conformance/run.py --quick                the tests in quick.txt, two minutes at most
    tests/conformance/run.py --endpoint URL --users FILE   any other server; only the counts are told

The suite stays outside the repository, in `../shared/suites`. Without it the run is skipped. An unknown failure fails the
run. A known failure that passes is reported, so that its line can go.
"""

import argparse
import collections
import configparser
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
import python_environment  # noqa: E402  (their folder must be on the path first)
import s3_endpoint  # noqa: E402

SUITE = s3_endpoint.REPOSITORY.parent / "shared/suites/s3-tests.tar.gz"
FILES = ["s3tests/functional/test_s3.py", "s3tests/functional/test_headers.py"]

# The selection that the suite's README beside it fixes: what S3 itself passes, without features that Millrace does not claim.
LEFT_OUT = """fails_on_aws lifecycle lifecycle_expiration lifecycle_transition cloud_transition cloud_restore bucket_logging
    bucket_logging_cleanup encryption sse_s3 bucket_encryption iam_tenant iam_account iam_user auth_aws2 appendobject"""
CORE = f"not ({' or '.join(LEFT_OUT.split())})"

# Tests that need a user without buckets, so none may run beside them.
ALONE = "test_list_buckets_paginated"

# A test that hangs must not hold up the others. The slowest right one takes some seconds.
TEST_TIMEOUT_S = 120
RUN_TIMEOUT_S = 3000
# One that hangs must fail alone, within the time of the whole run.
QUICK_TEST_TIMEOUT_S = 30
QUICK_RUN_TIMEOUT_S = 120

# The first expression that fits names the group.
GROUPS = [
    ("raw headers", r"test_headers::"),
    ("checksums and attributes", r"checksum|cksum|attributes$"),
    ("CORS", r"cors_"),
    ("public block", r"public_block|block_public|ignore_public"),
    ("POST forms", r"test_post_object"),
    ("object lock", r"object_lock"),
    ("copy conditions", r"copy_object_if"),
    ("conditional write", r"(put|current)_object_(current_)?if_|put_current_object_if"),
    ("conditional read", r"get_object_if|put_object_ifmatch"),
    ("policy", r"policy"),
    ("ownership", r"ownership|owner_enforced|owner_preferred|object_writer"),
    ("tagging", r"tag"),
    ("versioning", r"version|delete_marker"),
    ("multi-delete", r"multi_object"),
    ("copy", r"_copy_"),
    ("atomic", r"atomic|resend_first"),
    ("range", r"range"),
    ("multipart", r"multipart|get_part"),
    ("ACL", r"acl|access_bucket|grant"),
    ("anonymous and presigned", r"_raw_|anon_|presigned|put_authenticated"),
    ("lists", r"bucket_list(v2)?_|basic_key_count"),
    ("buckets", r"bucket"),
    ("basics", r""),
]


def configuration(server):
    """What the suite reads: where the server is, and who its users are."""
    main, alt, tenant = server.users[:3]
    written = configparser.RawConfigParser()
    written["DEFAULT"] = {
        "host": server.host, "port": server.port, "is_secure": server.is_secure, "ssl_verify": False,
    }
    written["fixtures"] = {"bucket prefix": "conf-{random}-"}
    users = {"s3 main": main, "s3 alt": alt, "s3 tenant": tenant, "iam": main, "iam root": main, "iam alt root": alt}
    for section, user in users.items():
        written[section] = {
            "display_name": user["display_name"], "user_id": user["id"], "email": user["email"],
            "access_key": user["access_key"], "secret_key": user["secret_key"],
        }
    written["s3 main"]["api_name"] = "default"
    written["s3 tenant"]["tenant"] = "tenant"
    return written


def lines(path):
    """The lines of a list, without comments and blank lines."""
    text = (line.split("#", 1)[0].strip() for line in path.read_text().splitlines())
    return [line for line in text if line]


def expected_failures():
    """Name → reason. A line is `test_s3::NAME: REASON`."""
    expected = {}
    for line in lines(HERE / "expected-failures.txt"):
        name, separator, reason = line.partition(": ")
        if not separator or not reason.strip():
            raise SystemExit(f"expected-failures.txt: {line!r} has no reason")
        expected[name] = reason.strip()
    return expected


def run_suite(arguments, python, server, folder):
    """Runs pytest, and returns name → None for a test that passed, else the first line of what went wrong."""
    with tarfile.open(SUITE) as archive:
        archive.extractall(folder, filter="data")
    suite = folder / "s3-tests"
    settings, report = folder / "s3tests.conf", folder / "report.xml"
    with settings.open("w") as file:
        configuration(server).write(file)
    selection = FILES
    if arguments.quick:
        selection = [f"s3tests/functional/{name.replace('::', '.py::')}" for name in lines(HERE / "quick.txt")]
    test_timeout_s = QUICK_TEST_TIMEOUT_S if arguments.quick else TEST_TIMEOUT_S
    command = [python, "-m", "pytest", "-q", "-m", CORE, f"--timeout={test_timeout_s}", "--tb=short"]
    command += ["-p", "no:cacheprovider", "-p", "isolate", *selection]
    limit_s = QUICK_RUN_TIMEOUT_S if arguments.quick else RUN_TIMEOUT_S
    output = pathlib.Path(arguments.log) if arguments.log else folder / "log"
    found = {}
    with output.open("wb") as log:
        suite_environment = {**os.environ, "S3TEST_CONF": str(settings), "PYTHONPATH": str(HERE)}
        if arguments.slices > 1:
            suite_environment |= {"SPREAD_ADMIN": server.admin, "SPREAD_SLICES": str(arguments.slices)}
            command += ["-p", "spread"]
        for count, tests in ((0, ALONE), (arguments.processes, f"not {ALONE}")):
            chosen = f"({arguments.only}) and {tests}" if arguments.only else tests
            report.unlink(missing_ok=True)
            run = [*command, "-n", str(count), f"--junitxml={report}", "-k", chosen]
            try:
                subprocess.run(run, cwd=suite, env=suite_environment, stdout=log, stderr=log, timeout=limit_s)
            except subprocess.TimeoutExpired:
                raise SystemExit(f"the suite ran longer than {limit_s} s") from None
            if not report.exists():
                raise SystemExit(f"pytest made no report:\n{output.read_text(errors='replace')[-4000:]}")
            found.update(results(report))
    return found


def results(report):
    """Reads pytest's report. A test that was skipped did not pass."""
    found = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname').rsplit('.', 1)[-1]}::{case.get('name')}"
        wrong = [part for part in case if part.tag in ("failure", "error", "skipped")]
        said = ((wrong[0].get("message") or wrong[0].tag).splitlines() or [""])[0] if wrong else None
        found[name] = found.get(name) or said
    return found


def group_of(name):
    return next(group for group, expression in GROUPS if re.search(expression, name))


def tell(found, expected):
    """Prints the counts of each group and what differs from the expectation; returns whether it is as expected."""
    counts = collections.defaultdict(lambda: [0, 0])
    for name, wrong in found.items():
        counts[group_of(name)][wrong is not None] += 1
    print(f"{'group':<26} {'passed':>6} {'failed':>6}")
    for group, _ in GROUPS:
        if group in counts:
            print(f"{group:<26} {counts[group][0]:>6} {counts[group][1]:>6}")
    failed = {name: wrong for name, wrong in found.items() if wrong is not None}
    unknown = {name: wrong for name, wrong in failed.items() if name not in expected}
    print(f"conformance: {len(found) - len(failed)} of {len(found)} tests passed, {len(failed)} did not")
    for name in sorted(name for name in expected if name in found and found[name] is None):
        print(f"passes now; remove its line from expected-failures.txt: {name}")
    for name, wrong in sorted(unknown.items()):
        print(f"FAILED {name}: {wrong[:200]}")
    return not unknown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    s3_endpoint.add_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="only the tests in quick.txt")
    parser.add_argument("--only", metavar="EXPRESSION", help="only tests that fit, as pytest -k takes it")
    parser.add_argument("--processes", type=int, default=4, help="tests at the same time (4)")
    parser.add_argument("--slices", type=int, default=1, help="of each bucket, in a server that is started here (1)")
    parser.add_argument("--log", metavar="FILE", help="keep what pytest printed")
    parser.add_argument("--list-failures", metavar="FILE", help="write the failures to a file, a line each")
    arguments = parser.parse_args()
    if not SUITE.exists():
        line = "skipped: S3 conformance: the suite is not in ../shared/suites"
        print(line, file=sys.stderr)
        with open(os.environ.get("MILLRACE_TEST_SKIPPED") or os.devnull, "a") as skipped:
            skipped.write(f"{line}\n")
        return 0
    expected = {} if arguments.endpoint else expected_failures()
    python = python_environment.python_with(HERE / "requirements.txt", "conformance")
    with tempfile.TemporaryDirectory(prefix="millrace-conformance-") as folder:
        # Clients of the old signature are part of the suite.
        arguments.serve_flag = arguments.serve_flag or ["--s3-signature-v2"]
        with s3_endpoint.endpoint(arguments) as server:
            found = run_suite(arguments, python, server, pathlib.Path(folder))
    if not found:
        raise SystemExit("no test ran")
    if arguments.list_failures:
        failed = sorted(f"{name}: {wrong}\n" for name, wrong in found.items() if wrong is not None)
        pathlib.Path(arguments.list_failures).write_text("".join(failed))
    is_as_expected = tell(found, expected)
    return 0 if is_as_expected or arguments.endpoint else 1


if __name__ == "__main__":
    sys.exit(main())
