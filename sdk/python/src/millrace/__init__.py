"""Millrace: stateful services whose every call is a transaction, exactly once and durable.

A service is a class; its annotations are fields of an entity, its methods are handlers::

    from millrace import Abort, Service, asgi, query

    class Account(Service):
        balance: int = 0

        async def deposit(self, amount: int) -> int:
            self.balance += amount
            return self.balance

    app = asgi(Account)
"""

from ._asgi import asgi
from ._dial import connect
from ._version import __version__
from ._worker.steps import Retry
from .client import AsyncClient, Client, Invocation, Unreachable
from .context import Context, Sent
from .errors import (
    Abort,
    CallError,
    InvalidInput,
    MillraceError,
    NotDeterministic,
    TerminalError,
    TypeMismatch,
    UsageError,
    WaitTimeout,
)
from .fields import field
from .handlers import query, route, schedule, transaction, workflow
from .items import Lazy, List, Map
from .objects import ListedObject, ObjectInfo, ObjectPage, ObjectWritten, StoredObject
from .service import Service
from .web import FetchResponse, Request, Response

__all__ = [
    "Abort",
    "AsyncClient",
    "CallError",
    "Client",
    "Context",
    "FetchResponse",
    "InvalidInput",
    "Invocation",
    "Lazy",
    "List",
    "ListedObject",
    "Map",
    "MillraceError",
    "NotDeterministic",
    "ObjectInfo",
    "ObjectPage",
    "ObjectWritten",
    "Request",
    "Response",
    "Retry",
    "Sent",
    "Service",
    "StoredObject",
    "TerminalError",
    "TypeMismatch",
    "Unreachable",
    "UsageError",
    "WaitTimeout",
    "__version__",
    "asgi",
    "connect",
    "field",
    "query",
    "route",
    "schedule",
    "transaction",
    "workflow",
]
