"""A handler that touches its own entity, and nothing else."""

from millrace import Service, asgi


class Counter(Service):
    count: int = 0

    async def add(self, amount: int) -> int:
        self.count += amount
        return self.count


services = [Counter]
app = asgi(*services)
