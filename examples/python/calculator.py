"""A number an entity, with the operations of a calculator."""

import math
from typing import Any

from millrace import Abort, Service, asgi, query


class Calculator(Service):
    value: float = 0

    async def add(self, n: Any) -> float:
        return self._change(n, 1)

    async def subtract(self, n: Any) -> float:
        return self._change(n, -1)

    @query
    async def get(self) -> float:
        return self.value

    def _change(self, n: Any, sign: int) -> float:
        # `n: float` would refuse other inputs with status 400; the contract of this example wants 409.
        if type(n) not in (int, float):
            raise Abort("the input must be a number")
        value = self.value + sign * n
        if not math.isfinite(value):
            raise Abort("the result is too large")
        # JSON has one kind of number: -2.5 + 2.5 is 0 and not 0.0.
        self.value = int(value) if value == int(value) and abs(value) < 2**53 else value
        return self.value


services = [Calculator]
app = asgi(*services)
