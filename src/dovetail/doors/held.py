"""What callers make a door hold: bytes of requests that are not whole yet, or of answers that are not read, of all connections together.

Each connection has bounds of its own, and twenty thousand of them would still fill any memory. Beyond the bound the one that began first
gives way: an honest caller is done in a moment, so whoever has been at it longest is the one that is slow, broken or hostile. (Refusing
the newcomer instead, or letting it wait, would give those who never end the power to keep everybody else out.)
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ..service.metrics import Registry

T = TypeVar("T")


class Held(Generic[T]):
    """Bytes by connection, in the order in which they began to hold something."""

    __slots__ = ("_bytes_max", "_gave_way", "_of", "bytes")

    def __init__(self, bytes_max: int, registry: Registry, name: str, what: str) -> None:
        """`name` begins with the door's, and is that of its metrics."""
        self._bytes_max = bytes_max
        self._of: dict[T, int] = {}
        self.bytes = 0
        registry.gauge(f"dovetail_{name}_bytes", f"Bytes of {what}.").of().read(lambda: self.bytes)
        self._gave_way = registry.counter(f"dovetail_{name}_cut_total", f"Callers cut off because all together held too much: {what}.").of()

    def hold(self, holder: T, size: int) -> list[T]:
        """It holds so much now. Returns those that give way for it, which may be itself; nothing is held for them any more."""
        self.bytes += size - self._of.get(holder, 0)
        self._of[holder] = size
        give_way = []
        while self.bytes > self._bytes_max:
            oldest = next(iter(self._of))
            self.let_go(oldest)
            give_way.append(oldest)
        self._gave_way.value += len(give_way)
        return give_way

    def let_go(self, holder: T) -> None:
        """It holds nothing any more. Idempotent."""
        self.bytes -= self._of.pop(holder, 0)
