"""Linearizability by search: is there an order of the calls, each between its beginning and its end, that a model allows? (Wing and Gong,
with the states remembered that were tried in vain.) Good for registers with a few clients. It explodes on queues: those have fifo.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from ..history import FOREVER, Call
from .verdict import Verdict

PROMISE = "reads and writes are linearizable"
STEPS_MAX = 2_000_000

Step = Callable[[Any, Call], Iterable[Hashable]]
"""(state, call) → the states that may follow; none where the call cannot have ended like this."""


class TooHard(Exception):
    """Not decided within STEPS_MAX steps."""


def linearizable(calls: Sequence[Call], begin: Hashable, step: Step) -> bool:
    """Calls that failed did not happen and are left out; those of unknown outcome may happen at any time after they began, or never."""
    todo = sorted((call for call in calls if call.outcome != "fail"), key=lambda call: call.began)
    needed = sum(1 << index for index, call in enumerate(todo) if call.ok)
    stack: list[tuple[int, Hashable]] = [(0, begin)]
    tried = set(stack)
    while stack:
        done, state = stack.pop()
        if done & needed == needed:
            return True
        if len(tried) > STEPS_MAX:
            raise TooHard
        end = FOREVER
        first = (~done & (done + 1)).bit_length() - 1
        for index in range(first, len(todo)):
            call = todo[index]
            if call.began > end:
                break  # It and all behind it began after something had ended that is still to be done.
            if done >> index & 1:
                continue
            end = min(end, call.ended)
            for following in step(state, call):
                new = done | 1 << index, following
                if new not in tried:
                    tried.add(new)
                    stack.append(new)
    return False


def register(state: Any, call: Call) -> Iterable[Hashable]:
    if call.verb == "write":
        return (call.asked["value"],)
    return (state,) if not call.ok or call.told["value"] == state else ()


def check(calls: Sequence[Call]) -> Verdict:
    """Each register by itself; they begin as None."""
    registers: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.verb in ("read", "write"):
            registers[call.asked["register"]].append(call)
    broken = []
    for name, own in sorted(registers.items()):
        try:
            if not linearizable(own, None, register):
                broken.append(f"the register {name}: no order of its {len(own)} calls explains what was read")
        except TooHard:
            broken.append(f"the register {name}: its {len(own)} calls overlap too much to tell")
    return Verdict(PROMISE, broken, {"registers": len(registers), "calls": sum(map(len, registers.values()))})
