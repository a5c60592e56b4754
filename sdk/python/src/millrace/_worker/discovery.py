"""What a worker says of its services."""

from __future__ import annotations

from typing import Any

from .._protocol.payloads import Kind
from ..handlers import Handler
from ..service import Definition

_KINDS = {Kind.TRANSACTION: "transaction", Kind.QUERY: "query", Kind.WORKFLOW: "workflow"}


def describe(definition: Definition) -> dict[str, Any]:
    """One service of the discovery document."""
    described: dict[str, Any] = {
        "name": definition.name,
        "fields": [name.decode() for name in definition.declared],
        "whole_up_to_bytes": definition.whole_up_to_bytes,
        "handlers": [_handler(handler) for handler in definition.handlers.values()],
    }
    if definition.concurrency is not None:
        described["concurrency"] = definition.concurrency
    if definition.routes:
        patterns = [name.split(" ", 1) for name in definition.routes]
        described["routes"] = [{"method": method, "path": path} for method, path in patterns]
    schedules = [
        {
            "name": schedule.name or handler.name,
            "cron": schedule.cron,
            "key": schedule.key,
            "handler": handler.name,
            "input": schedule.input,
        }
        for handler in definition.handlers.values()
        for schedule in handler.schedules
    ]
    if schedules:
        described["schedules"] = schedules
    return described


def _handler(handler: Handler) -> dict[str, Any]:
    described: dict[str, Any] = {"name": handler.name, "kind": _KINDS[handler.kind]}
    if handler.timeout_ms is not None:
        described["timeout_ms"] = handler.timeout_ms
    for name, schema in (
        ("input", handler.signature.input_schema()),
        ("output", handler.signature.output_schema()),
    ):
        # An empty schema allows everything, as an absent one does.
        if schema:
            described[name] = schema
    return described
