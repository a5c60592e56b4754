"""Types of inputs, outputs and fields: each checks, converts and describes itself.

Values go through two forms. *Plain* is what ``json`` knows: dicts, lists, texts, numbers. *Typed* is
what the annotation says: a dataclass, a UUID, a set.
"""

from .base import Mismatch, Type
from .build import type_of
from .text import dumps, loads

__all__ = ["Mismatch", "Type", "dumps", "loads", "type_of"]
