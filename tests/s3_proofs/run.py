#!/usr/bin/env python3
"""Proofs of promises about objects that need many rounds, many kills or much data; see README.md.

    tests/s3_proofs/run.py                              all of them against the built server, some ten minutes
    tests/s3_proofs/run.py --only writers,rot           some of them
    tests/s3_proofs/run.py --only memory --bytes 5000000000
    tests/s3_proofs/run.py --only kills --kills 5 --seed 7

One seed decides keys, sizes, order and the moments of kills. What the machine does in between stays its own.
"""

import argparse
import importlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
import python_environment  # noqa: E402  (their folder must be on the path first)
import s3_endpoint  # noqa: E402

# Each is a module with a function `prove`, and has so many seconds.
PROOFS = {"writers": 1200, "notifications": 1800, "memory": 1800, "kills": 1800, "versions": 1200, "rot": 600}


def in_environment():
    """Goes on in the Python that has the packages."""
    python = python_environment.python_with(HERE / "requirements.txt", "s3-proofs")
    if pathlib.Path(sys.prefix) != python.parent.parent:
        os.execv(python, [python, *sys.argv])


def out_of_time(*_):
    raise TimeoutError("the proof took longer than it may")


def proved(name, arguments):
    """Runs one proof and tells how it ended."""
    import client
    import node

    began = time.monotonic()
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"millrace-{name}-"))
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(PROOFS[name])
    try:
        told = importlib.import_module(name).prove(arguments, folder)
        print(f"ok {name} ({time.monotonic() - began:.0f} s): {told}", flush=True)
        return True
    except (node.Failed, client.Unknown, TimeoutError) as error:
        print(f"FAILED {name} ({time.monotonic() - began:.0f} s, seed {arguments.seed}): {error}", flush=True)
        log = folder / "log"
        if log.exists():
            print("the end of the server's log:", log.read_text(errors="replace")[-1500:], sep="\n", flush=True)
        return False
    finally:
        signal.alarm(0)
        if arguments.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="the built server; target/release/millrace without it")
    parser.add_argument("--only", metavar="NAME,…", default=",".join(PROOFS), help="these proofs: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="what decides everything (1)")
    parser.add_argument("--rounds", type=int, default=1000, help="rounds of `writers` (1000)")
    parser.add_argument("--kills", type=int, help="kills of `notifications` (100), `kills` (50) and `versions` (25)")
    parser.add_argument("--slices", type=int, default=1, help="slices of the bucket of `kills` and `versions` (1)")
    parser.add_argument("--bytes", type=int, default=1_000_000_000, help="the object of `memory` (1000000000)")
    parser.add_argument("--keep", action="store_true", help="keep the data directories")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    for name in names:
        if name not in PROOFS:
            parser.error(f"there is no proof {name!r}: choose of {', '.join(PROOFS)}")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", s3_endpoint.REPOSITORY / "target"))
    arguments.binary = pathlib.Path(arguments.binary or target / "release/millrace")
    if not arguments.binary.is_file():
        raise SystemExit(f"{arguments.binary} is missing; run make build")
    in_environment()
    return 0 if all([proved(name, arguments) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
