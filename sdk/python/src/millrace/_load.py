"""Finding services by a name such as ``bank:services``, as the command lines have it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from ._asgi import Application
from .service import Service


def load(target: str) -> tuple[str, list[type[Service]]]:
    """The name of the app and its services.

    ``target`` is a module or a file, and behind a colon the name of a service, a list of services, or what
    ``millrace.asgi`` made. Without that, all services of the module are meant.
    """
    name, _, attribute = target.partition(":")
    module = _module(name)
    app = module.__name__.rpartition(".")[2]
    if not attribute:
        found = [
            member
            for member in vars(module).values()
            if isinstance(member, type) and issubclass(member, Service) and member.__module__ == module.__name__
        ]
        if not found:
            raise ValueError(f"{name} has no class that is a millrace.Service")
        return app, found
    if not hasattr(module, attribute):
        raise ValueError(f"{name} has no {attribute!r}")
    return app, _services(target, getattr(module, attribute))


def _services(target: str, given: Any) -> list[type[Service]]:
    if isinstance(given, Application):
        return given.services
    listed = [given] if isinstance(given, type) else list(given)
    for each in listed:
        if not (isinstance(each, type) and issubclass(each, Service)):
            raise ValueError(f"{target}: {each!r} is not a millrace.Service")
    return listed


def _module(name: str) -> ModuleType:
    if name.endswith(".py"):
        path = os.path.abspath(name)
        folder, file = os.path.split(path)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        name = file[: -len(".py")]
    elif os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return importlib.import_module(name)
