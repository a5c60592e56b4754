#!/usr/bin/env python3
"""Runs the tests of versitygw against the built server and compares their failures with `versitygw-failures.txt`.

    tests/conformance/versitygw.py                          all tests of S3
    tests/conformance/versitygw.py --only 'ListParts|CORS'  those whose name fits
    tests/conformance/versitygw.py --write                  the list is written anew: names move to their old reason or to none

Go's module proxy has the program. Two things are changed before it is built: of an error, it compares the code and the
status, not versitygw's own words and further elements; and it believes that buckets may keep versions. Each test gets a
server that no other test uses, because the tests count all buckets and leave theirs when they fail. Its users are made with
`millrace s3 user add`. An unknown failure fails the run, and so does a known one that passes.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
import s3_endpoint  # noqa: E402  (its folder must be on the path first)

MODULE, VERSION = "github.com/versity/versitygw", "v1.8.0"
FAILURES = HERE / "versitygw-failures.txt"
TEST_TIMEOUT_S = 120
ROOT = s3_endpoint.USERS[0]

# Groups that `full-flow` runs and that need versitygw's own admin API, and one for buckets that cannot keep versions.
LEFT_OUT_GROUPS = {"TestGatewayIAM", "TestListObjectVersions_VD"}

# File, text, and what stands in its place.
CHANGES = [
    ("utils.go", """	if received.Message != apiErr.Description {
		return fmt.Errorf("expected error message to be %v, instead got %v", apiErr.Description, received.Message)
	}

	return compareS3ApiErr(expected, received)
""", "	return nil\n"),
    ("utils.go", """		if ae.ErrorMessage() != apiErr.Description {
			return fmt.Errorf("expected error message to be %v, instead got %v", apiErr.Description, ae.ErrorMessage())
		}

		return nil
""", "		return nil\n"),
    ("s3conf.go", "	s := &S3Conf{}\n", "	s := &S3Conf{versioningEnabled: true}\n"),
]

# Stands in the place of the program that a test asks to make its users.
ADMIN = """#!/bin/sh
while [ $# != 0 ]; do
    case $1 in create-user) wanted=yes ;; -a) access=$2 ;; -s) secret=$2 ;; esac
    shift
done
[ -n "$wanted" ] || { echo "only users are made here" >&2; exit 1; }
exec 'BINARY' s3 user add "$access" --access-key "$access" --secret-key "$secret" --url 'URL'
"""


def judge(tools):
    """Builds the program, once below the target folder. Returns its path and that of its source."""
    seed = pathlib.Path(__file__).stat().st_mtime_ns
    source, built = tools / f"versitygw-{VERSION}", tools / f"versitygw-{VERSION}.built"
    program = source / "versitygw-changed"
    if built.exists() and built.read_text() == str(seed):
        return program, source
    if not shutil.which("go"):
        raise SystemExit("versitygw is built with Go, which is not installed")
    asked = subprocess.run(["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], capture_output=True, cwd="/")
    if asked.returncode != 0:
        raise SystemExit(f"could not get versitygw: {(asked.stderr or asked.stdout).decode()[-600:]}")
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(json.loads(asked.stdout)["Dir"], source, copy_function=shutil.copyfile)
    subprocess.run(["chmod", "-R", "u+w", source], check=True)
    for name, text, instead in CHANGES:
        path = source / "tests/integration" / name
        found = path.read_text()
        if found.count(text) != 1:
            raise SystemExit(f"versitygw {VERSION}: {name} has not once:\n{text}")
        path.write_text(found.replace(text, instead))
    name_all(source)
    subprocess.run(["go", "build", "-o", program, "./cmd/versitygw"], cwd=source, check=True)
    built.write_text(str(seed))
    return program, source


def name_all(source):
    """Some tests are run by `full-flow` but have no command of their own: they get one."""
    path = source / "tests/integration/group-tests.go"
    text = path.read_text()
    lacking = [name for name in names_of_tests(source) if f'"{name}":' not in text]
    commands = "".join(f'\t\t"{name}": {name},\n' for name in lacking)
    path.write_text(text.replace("\treturn IntTests{\n", f"\treturn IntTests{{\n{commands}", 1))


def names_of_tests(source):
    """The names that `full-flow` runs, in its order, by its source."""
    text = (source / "tests/integration/group-tests.go").read_text()
    bodies = dict(re.findall(r"^func (Test\w+)\(ts \*TestState\) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL))
    names = []
    for group in re.findall(r"(Test\w+)\(ts\)", bodies["TestFullFlow"]):
        if group not in LEFT_OUT_GROUPS:
            names += re.findall(r"^\s*ts\.(?:Run|Sync)\((\w+)\)", bodies[group], re.MULTILINE)
    return list(dict.fromkeys(names))


def run_test(program, binary, name):
    """Runs one test with a server of its own; returns nothing or what went wrong."""
    s3_endpoint.USERS = [ROOT]
    chosen = types.SimpleNamespace(endpoint=None, binary=binary, serve_flag=[])
    with tempfile.TemporaryDirectory(prefix="millrace-versitygw-") as folder, s3_endpoint.endpoint(chosen) as server:
        admin = pathlib.Path(folder, "versitygw")
        admin.write_text(ADMIN.replace("BINARY", str(binary)).replace("URL", server.admin))
        admin.chmod(0o755)
        user = server.users[0]
        command = [program, "test", "-a", user["access_key"], "-s", user["secret_key"], "-e", server.url, name]
        # What a user has set for other servers, such as another bundle of certificates, is nothing to this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        try:
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TEST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"ran longer than {TEST_TIMEOUT_S} s"
    output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    # Some tests call themselves by another name there.
    if done.returncode == 0 and re.search(r"^PASS ", output, re.MULTILINE):
        return None
    # The program tells it a second time, with the time.
    said = re.search(r"^FAIL\s+\w+: (.*?)(^\d{4}/|\Z)", output, re.MULTILINE | re.DOTALL)
    return " ".join((said[1] if said else output).split())[:300] or f"exit {done.returncode}"


def known_failures():
    """Name → reason. A line that begins with `= ` is the reason of the names below it."""
    known, reason = {}, None
    for line in FAILURES.read_text().splitlines() if FAILURES.exists() else []:
        if line.startswith("= "):
            reason = line[2:].strip()
        elif line.strip() and not line.startswith("#"):
            if not reason or line in known:
                raise SystemExit(f"{FAILURES.name}: {line!r} has no reason, or stands there twice")
            known[line.strip()] = reason
    return known


def write_failures(failed, known):
    reasons = list(dict.fromkeys([*known.values(), "none yet"]))
    text = [line for line in FAILURES.read_text().splitlines() if line.startswith("#")] if FAILURES.exists() else []
    for reason in reasons:
        names = sorted(name for name in failed if known.get(name, "none yet") == reason)
        text += ["", f"= {reason}", *names] if names else []
    FAILURES.write_text("\n".join(text) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="the built server; target/release/millrace without it")
    parser.add_argument("--only", metavar="EXPRESSION", default="", help="only tests whose name has this regular expression")
    parser.add_argument("--processes", type=int, default=2, help="tests at the same time (2)")
    parser.add_argument("--log", metavar="FILE", help="write what each failed test said to a file, a line each")
    parser.add_argument("--write", action="store_true", help="write the list of known failures")
    arguments = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", s3_endpoint.REPOSITORY / "target")).absolute()
    binary = pathlib.Path(arguments.binary or target / "release/millrace").absolute()
    known = known_failures()
    (target / "tools").mkdir(parents=True, exist_ok=True)
    program, source = judge(target / "tools")
    every = names_of_tests(source)
    names = [name for name in every if re.search(arguments.only, name)]
    if not names:
        raise SystemExit("no test ran")
    with concurrent.futures.ThreadPoolExecutor(arguments.processes) as pool:
        found = dict(zip(names, pool.map(lambda name: run_test(program, binary, name), names)))
    failed = {name: wrong for name, wrong in found.items() if wrong is not None}
    if arguments.log:
        pathlib.Path(arguments.log).write_text("".join(f"{name}: {wrong}\n" for name, wrong in failed.items()))
    if arguments.write:
        write_failures([*failed, *(name for name in known if name in every and name not in found)], known)
    return tell(found, failed, known, every)


def tell(found, failed, known, every):
    print(f"versitygw {VERSION}: {len(found) - len(failed)} of {len(found)} tests passed, {len(failed)} did not")
    for reason, count in collections.Counter(known.get(name, "no reason is known") for name in failed).most_common():
        print(f"{count:>4}  {reason}")
    wrong = [f"passes now; remove it from {FAILURES.name}: {name}" for name in known if name in found and name not in failed]
    wrong += [f"is no test; remove it from {FAILURES.name}: {name}" for name in known if name not in every]
    wrong += [f"FAILED {name}: {said}" for name, said in failed.items() if name not in known]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
