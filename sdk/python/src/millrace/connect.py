"""``python -m millrace.connect app:services --url NODE``: a worker that dials in."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

from ._dial import KEY_VARIABLE, Dialer, Refused, run_until_told
from ._load import load
from ._worker.worker import THREADS


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m millrace.connect", description=__doc__)
    parser.add_argument("target", help="a module or file with services, such as bank, bank.py or bank:services")
    parser.add_argument(
        "--url",
        required=True,
        action="append",
        help="a node, such as http://127.0.0.1:8080; once for each of a cluster",
    )
    parser.add_argument("--app", help="the app that the services are; the module's name if it is left out")
    parser.add_argument("--key", help=f"an API key with the role worker; ${KEY_VARIABLE} if it is left out")
    parser.add_argument("--threads", type=int, default=THREADS, help="how many plain def handlers run at once")
    parser.add_argument(
        "--concurrency", type=int, help="how many calls from outside run at once; 256 if it is left out"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        name, services = load(options.target)
        app = options.app or name
        dialer = Dialer(services, options.url, app, options.key, options.threads, options.concurrency)
        asyncio.run(run_until_told(dialer))
        if dialer.worker.threads_taken:
            # Their calls are void, but Python would wait for plain handlers that still run.
            logging.shutdown()
            os._exit(0)
    except (ValueError, TypeError, ImportError, Refused) as error:
        print(f"millrace.connect: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
