"""Tests of services against a real server.

With pytest, the plugin's fixture does all of it::

    services = [Account]

    def test_deposit(millrace):
        assert millrace.client.call(Account(millrace.key("ann")).deposit, 5) == 5

Without pytest, use :class:`Running`. The server is the program ``millrace`` on the PATH, or the one that the
environment variable ``MILLRACE_BINARY`` names.
"""

from .node import Node, find_binary
from .running import Isolated, Running
from .workers import ProcessWorker, ThreadWorker

__all__ = ["Isolated", "Node", "ProcessWorker", "Running", "ThreadWorker", "find_binary"]
