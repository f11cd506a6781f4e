"""Chosen messages from one queue to others, each exactly once, and the others left as they were.

A queue gives what is next and not what one asks for. So everything up to the last chosen message is taken under a lease; what was chosen is
completed here and pushed there in one operation; the rest is released at the end, as if it had never been taken. (Refused: push first and
cancel by sequence then. Between the two somebody else may receive the message, and it is there twice.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from dovetail.core import codec
from dovetail.core.column import Column
from dovetail.core.message import decode_attributes, encode_attributes, id_of
from dovetail.core.operation import Push
from dovetail.doors.native.answers import Deliveries, Run
from dovetail.doors.native.codec import Item, Kind, requests
from dovetail.errors import DovetailError, OverInFlight, ReceiptInvalid
from dovetail.spark.options import Options
from dovetail.spark.pipelines import Say
from dovetail.spark.pipelines.deadletter import ACCUSING

LEASE_MS = 600_000
WORK_S = 480
"""Then what is left is given back, well before the first lease ends: the next run goes on with it."""
PULL_MESSAGES = 1_000
MOVE_BYTES = 200_000


class Taken(NamedTuple):
    """One message in our hands."""

    sequence: int
    item: Item
    body: bytes
    identity: bytes
    group: bytes
    attributes: bytes


class Redrive:
    def __init__(self, options: Options, targets: Mapping[int, str], say: Say) -> None:
        self._options = options
        self._targets = targets
        self._say = say
        self._reach = options.reach()
        self._queue = self._reach.patiently(partial(self._reach.open, options.namespace, options.names[0]))
        self.moved = 0

    def run(self) -> int:
        """How many were moved."""
        for name in set(self._targets.values()):
            self._reach.patiently(partial(self._reach.open, self._options.namespace, name))
        held: list[Item] = []
        try:
            self._walk(held)
        finally:
            self._give_back(held)
            self._reach.drop()
        return self.moved

    def _walk(self, held: list[Item]) -> None:
        left, last, began = set(self._targets), max(self._targets), time.monotonic()
        while left and time.monotonic() - began < WORK_S:
            taken = list(self._pulled())
            if not taken or min(one.sequence for one in taken) > last:
                held += [one.item for one in taken]
                return  # Those that are left are with somebody else, or behind others of their group that are.
            left -= {one.sequence for one in taken}
            for target in sorted({self._targets[one.sequence] for one in taken if one.sequence in self._targets}):
                for some in cut([one for one in taken if self._targets.get(one.sequence) == target]):
                    self._move(target, some)
            held += [one.item for one in taken if one.sequence not in self._targets]
            self._say(f"{self.moved:,} moved, {len(held):,} in hand until the end")

    def _pulled(self) -> Iterator[Taken]:
        # A lost answer leaves messages under a lease that nobody knows; they come back when it ends.
        try:
            found: Deliveries = self._reach.patiently(self._pull)
        except OverInFlight:
            return
        salt = int.from_bytes(self._reach.line.welcome.salt, "big")
        index = 0
        for run in found.runs:
            for at in range(run.length):
                own = bytes(found.ids[16 * index : 16 * index + 16]) if found.ids is not None else b""
                yield Taken(
                    run.sequence + at,
                    item_of(run, at),
                    bytes(found.bodies[index]),
                    own if any(own) else id_of(self._queue, run.sequence + at, salt),
                    bytes(found.groups[index]) if found.groups is not None else b"",
                    unaccused(bytes(found.attributes[index]) if found.attributes is not None else b""),
                )
                index += 1

    def _pull(self) -> Deliveries:
        self._open(self._options.names[0])
        found: Deliveries = self._reach.line.ask(requests.Pull(self._queue, PULL_MESSAGES, LEASE_MS))
        return found

    def _open(self, name: str) -> int:
        return self._reach.open(self._options.namespace, name)

    def _move(self, target: str, some: list[Taken]) -> None:
        asked = 0

        def ask() -> None:
            nonlocal asked
            self._open(self._options.names[0])
            push = Push(
                (self._open(target),),
                Column.of([one.body for one in some]),
                ids=b"".join(one.identity for one in some),
                groups=Column.of([one.group for one in some]) if any(one.group for one in some) else None,
                attributes=Column.of([one.attributes for one in some]) if any(one.attributes for one in some) else None,
            )
            asked += 1
            self._reach.line.ask(requests.CompletePush(self._queue, [one.item for one in some], codec.encode_push(push)))

        try:
            self._reach.patiently(ask)
        except ReceiptInvalid:
            if asked > 1:
                self.moved += len(some)  # An attempt whose answer was lost has done it: these receipts are over.
            elif len(some) > 1:
                for one in some:  # One of them was taken back from us; the others go.
                    self._move(target, [one])
            return
        self.moved += len(some)

    def _give_back(self, held: list[Item]) -> None:
        try:
            for at in range(0, len(held), PULL_MESSAGES):
                settle = requests.Settle(Kind.RELEASE, self._queue, held[at : at + PULL_MESSAGES])
                self._reach.patiently(partial(self._ask, settle))
        except DovetailError as error:
            self._say(f"what was not chosen comes back in ten minutes, when its lease ends: {error}")

    def _ask(self, settle: requests.Settle) -> None:
        self._open(self._options.names[0])
        self._reach.line.ask(settle)


def item_of(run: Run, at: int) -> Item:
    return Item(run.sequence, run.delivery, run.length, at, at + 1, run.seal)


def unaccused(attributes: bytes) -> bytes:
    """As the message was before it failed."""
    told = decode_attributes(attributes)
    return (
        encode_attributes({name: one for name, one in told.items() if name not in ACCUSING}) if told.keys() & set(ACCUSING) else attributes
    )


def cut(taken: list[Taken]) -> Iterator[list[Taken]]:
    """In operations of a good size."""
    some: list[Taken] = []
    size = 0
    for one in taken:
        if some and size + len(one.body) + len(one.attributes) > MOVE_BYTES:
            yield some
            some, size = [], 0
        some.append(one)
        size += len(one.body) + len(one.attributes)
    if some:
        yield some
