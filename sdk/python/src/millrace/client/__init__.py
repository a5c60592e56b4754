"""Clients of the HTTP API: :class:`Client` and :class:`AsyncClient`.

Every call has an idempotency key, so it is sent again without harm when its answer got lost.
"""

from .aio import AsyncClient, AsyncInvocation
from .core import Reply, Unreachable
from .sync import Client, Invocation

__all__ = ["AsyncClient", "AsyncInvocation", "Client", "Invocation", "Reply", "Unreachable"]
