"""A plan: what shall be broken, how and how often, as data. It can be written down as JSON, and its seed says what happens when.

    {"name": "kill", "attacks": "…", "every_s": 3, "rounds": [[{"do": "kill", "what": "node", "which": "one", "for_s": 0.5}], []]}

A plan goes round after round: every `every_s` seconds one of `rounds` is drawn, and all of its actions begin together. A round that is
empty is a pause in which the system may recover; without one a plan finds only what breaks under constant fire.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from ...errors import BadRequest
from ...limits import LOGS_MAX

What = Literal["node", "broker", "wire"]
Which = Literal["one", "minority", "majority", "all"]


@dataclass(frozen=True, slots=True)
class Kill:
    """kill −9; started again after `for_s`."""

    do: ClassVar[str] = "kill"
    what: What
    for_s: float
    which: Which = "one"


@dataclass(frozen=True, slots=True)
class Restart:
    """Told to stop, as an operator does; started again after `for_s`."""

    do: ClassVar[str] = "restart"
    what: What
    for_s: float
    which: Which = "one"


@dataclass(frozen=True, slots=True)
class Pause:
    """SIGSTOP, and SIGCONT after `for_s`."""

    do: ClassVar[str] = "pause"
    what: What
    for_s: float
    which: Which = "one"


@dataclass(frozen=True, slots=True)
class Cut:
    """Wires to nodes are cut and stay so. `silent`: nobody is told, bytes wait until it is over."""

    do: ClassVar[str] = "cut"
    for_s: float
    which: Which = "one"
    silent: bool = False
    what: What = "wire"


@dataclass(frozen=True, slots=True)
class Slow:
    """Whatever passes a wire comes later, by `delay_ms` and up to `jitter_ms` more."""

    do: ClassVar[str] = "slow"
    for_s: float
    delay_ms: int
    jitter_ms: int = 0
    which: Which = "one"
    what: What = "wire"


@dataclass(frozen=True, slots=True)
class Lossy:
    """A wire breaks now and then: after each piece that passes with the probability `loss`, often in the middle of a frame."""

    do: ClassVar[str] = "lossy"
    for_s: float
    loss: float
    which: Which = "one"
    what: What = "wire"


@dataclass(frozen=True, slots=True)
class Full:
    """The file system of the data folder has no room left."""

    do: ClassVar[str] = "full"
    for_s: float
    which: Which = "all"
    what: What = "node"


@dataclass(frozen=True, slots=True)
class Power:
    """The power of a whole machine room goes, and with it whatever nobody had synced; it is back after `for_s`."""

    do: ClassVar[str] = "power"
    what: What
    for_s: float
    which: Which = "all"


Action = Kill | Restart | Pause | Cut | Slow | Lossy | Full | Power
ACTIONS: Mapping[str, type[Any]] = {made.do: made for made in get_args(Action)}


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    attacks: str
    """The promise that it tries to break."""
    rounds: Sequence[Sequence[Action]]
    every_s: float = 3.0
    logs: int = 1
    """Over so many logs the queues are spread, where a store has several."""

    def json(self) -> str:
        rounds = [[{"do": action.do, **asdict(action)} for action in together] for together in self.rounds]
        return json.dumps({**asdict(self), "rounds": rounds}, indent=2)

    def needs(self) -> set[What]:
        return {action.what for together in self.rounds for action in together}


def from_json(text: str) -> Plan:
    try:
        given = json.loads(text)
        rounds = tuple(tuple(_action(dict(action)) for action in together) for together in given.pop("rounds"))
        made = Plan(rounds=rounds, **given)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadRequest(f"this is no plan: {error!r}") from None
    if not made.every_s > 0 or not any(made.rounds) or type(made.logs) is not int or not 1 <= made.logs <= LOGS_MAX:
        raise BadRequest("a plan breaks something, again and again")
    return made


def _action(given: dict[str, Any]) -> Action:
    made: Action = ACTIONS[given.pop("do")](**given)
    if not made.for_s > 0 or made.which not in get_args(Which) or made.what not in get_args(What):
        raise ValueError(f"{made} cannot be done")
    return made


class Event(NamedTuple):
    """At `at_s` the action begins for those with these numbers; it ends `action.for_s` later."""

    at_s: float
    action: Action
    numbers: tuple[int, ...]


def timeline(plan: Plan, seconds: float, seed: int, counts: Mapping[What, int]) -> list[Event]:
    """What happens when, with so many nodes, brokers and wires. Everything begins and ends within `seconds`, and nobody is broken in two
    ways at once, though a wire and its node may be."""
    chance = Random(seed)
    events: list[Event] = []
    free: dict[tuple[What, int], float] = {}
    rounds = list(plan.rounds)
    at_s, drawn = plan.every_s / 2, 0
    while at_s < seconds:
        if drawn % len(rounds) == 0:
            # Each round comes once before any comes again, so that a short run has seen all of them if it can.
            chance.shuffle(rounds)
        for action in rounds[drawn % len(rounds)]:
            able = [number for number in range(counts.get(action.what, 0)) if free.get((action.what, number), 0.0) <= at_s]
            numbers = tuple(sorted(chance.sample(able, min(len(able), _how_many(action.which, counts.get(action.what, 0))))))
            if numbers and at_s + action.for_s <= seconds:
                events.append(Event(at_s, action, numbers))
                free.update({(action.what, number): at_s + action.for_s for number in numbers})
        drawn += 1
        at_s += plan.every_s * chance.uniform(0.7, 1.3)
    return events


def _how_many(which: Which, count: int) -> int:
    return {"one": 1, "minority": max(1, (count - 1) // 2), "majority": count // 2 + 1, "all": count}[which]
