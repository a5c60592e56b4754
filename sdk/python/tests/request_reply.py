"""The examples of examples/python, for a server that gets each turn by a request, over HTTP/2 too."""

from __future__ import annotations

import sys
from importlib import import_module

from processes import EXAMPLES

import millrace

sys.path.insert(0, str(EXAMPLES))
app = millrace.asgi(*import_module("app").services, stream=False)
