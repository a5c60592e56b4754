"""Puts the server that is built into the wheel, instead of compiling it once more."""

from __future__ import annotations

import os
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Program(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program = os.environ.get("MILLRACE_BINARY", "")
        if not os.access(program, os.X_OK):
            raise RuntimeError("MILLRACE_BINARY has to name the server's program")
        build_data["shared_scripts"][program] = "millrace"
        # For this machine's kind, and any Python: nothing in the program knows one.
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
