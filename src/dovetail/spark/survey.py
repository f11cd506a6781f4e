"""What the driver asks of a node: which queues there are, how far they go, where reading begins, what was lost, what may be released.

It opens taps, and moves them when it is told to; it never reads more than a few messages, to learn their size or their time.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from dovetail.core.operation import EARLIEST, LATEST
from dovetail.doors.native.codec import Kind, answers, requests
from dovetail.errors import BadRequest, DovetailError, NoSuchQueue, NoSuchTap
from dovetail.spark.behind import confirm
from dovetail.spark.offsets import Offsets, Place, Range
from dovetail.spark.options import Options, Start, matches
from dovetail.spark.reach import Reach

FIRST_PATIENCE_S = 15.0
"""Until the driver has met the node for the first time: an address that is spelled wrongly is told soon."""
SAMPLES = 4
SAMPLE_MESSAGES = 64

log = logging.getLogger("dovetail.spark")


class DataLost(BadRequest):
    """Messages that were to be read are gone."""


class Stand(NamedTuple):
    """How a queue stands with our tap, or with nobody's."""

    queue: int
    next: int
    """The first sequence that can be read."""
    end: int
    """The sequence that the next push will get."""
    lost: int = 0
    """How many messages a cut has taken from the tap, and nobody has acknowledged it."""


class Survey:
    key = "sequence"
    """The column by which places are told."""
    what = "messages"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.reach: Reach = options.reach(FIRST_PATIENCE_S)

    @property
    def origin(self) -> str:
        return self.reach.patiently(lambda: self.reach.line.origin)

    def addresses(self) -> list[str]:
        """By what else this node can be reached: executors may sit elsewhere than the driver."""
        return self.reach.patiently(lambda: list(self.reach.line.addresses))

    # Queues

    def names(self) -> list[str]:
        """The queues that are meant, in order. One that is named must be there; a pattern may find none yet."""
        found: set[str] = set()
        for name in self.options.names:
            found.update(self._matching(name) if "*" in name else [name])
        return sorted(found)

    def _matching(self, pattern: str) -> list[str]:
        prefix, after, found, more = pattern.partition("*")[0], "", list[str](), True
        while more:
            page = self.reach.patiently(partial(self._page, prefix, after))
            found += [name for name, _ in page.queues if matches(pattern, name)]
            more = page.more
            after = page.queues[-1][0] if page.queues else after
        return found

    def _page(self, prefix: str, after: str) -> answers.Queues:
        page: answers.Queues = self.reach.line.ask(requests.List(prefix, after, 1000, self.options.namespace))
        return page

    def stands(self) -> dict[str, Stand]:
        """Every queue that is meant, with its tap opened where it has none yet: with all that was there when it was asked for."""
        return {name: self.stand(name, sure=True) for name in self.names()}

    def stand(self, name: str, *, sure: bool = False) -> Stand:
        """How it stands, as far as the node knows; `sure`: also what only other nodes know yet."""
        return self.reach.patiently(partial(self._stand, name, sure=sure))

    def _stand(self, name: str, *, sure: bool) -> Stand:
        try:
            return self._seen(name, sure=sure)
        except NoSuchQueue:
            # Dropped, or made anew since it was opened on this line: the name says which.
            self.reach.forget(self.options.namespace, name)
            return self._seen(name, sure=sure)

    def _seen(self, name: str, *, sure: bool) -> Stand:
        queue = self.reach.open(self.options.namespace, name)
        if not self.options.tap:
            look: answers.Messages = self.reach.line.ask(requests.Peek(queue, 1))
            return Stand(queue, look.sequences[0] if look.sequences else look.end, look.end)
        tap = self._tap(queue)
        if tap is not None and sure:
            confirm(self.reach, self.options, queue)
            tap = self._tap(queue)
        if tap is None:
            self.reach.line.ask(
                requests.TapOpen(queue, self.options.tap, self._tap_start(name), self.options.tap_age_ms, self.options.tap_bytes)
            )
            tap = self._tap(queue)
            if tap is None:
                raise NoSuchTap(f"The tap {self.options.tap!r} of {name!r} was closed while it was opened")
        return Stand(queue, tap.next, tap.end, tap.lost_count)

    def _tap(self, queue: int) -> answers.Tap | None:
        taps: answers.Taps = self.reach.line.ask(requests.About(Kind.TAP_LIST, queue))
        return next((tap for tap in taps.taps if tap.name == self.options.tap), None)

    def _tap_start(self, name: str) -> int:
        """Where a tap that is made now begins."""
        starting = self.options.starting
        if starting == "latest":
            return LATEST
        return starting.get(name, EARLIEST) if isinstance(starting, dict) else EARLIEST

    # Where reading begins and ends

    def place(self, name: str, stand: Stand, said: Start) -> int:
        """A sequence for what an option says. `earliest` is what the tap still has; `latest` counts where a tap is made (it then begins
        there): one that is there goes on where it is, else a query that dies before its first batch would leave out what came meanwhile."""
        if said == "latest":
            return stand.next if self.options.tap else stand.end
        if isinstance(said, dict):
            return min(max(said.get(name, stand.next), stand.next), stand.end)
        if isinstance(said, int):
            return self._since(name, stand, said)
        return stand.next

    def _since(self, name: str, stand: Stand, time_ms: int) -> int:
        """The first message that was pushed at this time or later: times never fall from one sequence to the next."""
        low, high = stand.next, stand.end
        while low < high:
            middle = (low + high) // 2
            batch = self.sample(Range(name, stand.queue, middle, high), 1)
            if batch is None or batch.column("time").cast(pa.int64())[0].as_py() >= time_ms:
                high = middle
            else:
                low = batch.column(self.key)[0].as_py() + 1
        return low

    def sample(self, part: Range, most: int) -> pa.RecordBatch | None:
        """The first messages of a range, few and not many bytes of them; None where it holds none."""
        if not self.options.tap:
            raise BadRequest("a time to start or end at needs a tap: without one a read shows what waits now")
        return self.reach.patiently(partial(self._sample, part, most))

    def _sample(self, part: Range, most: int) -> pa.RecordBatch | None:
        queue = self.reach.open(self.options.namespace, part.name)
        answer = self.reach.line.ask(requests.TapRead(queue, self.options.tap, part.start, most, 1 << 16, arrow=True))
        with pa.ipc.open_stream(pa.py_buffer(answer.stream)) as stream:
            return next((batch for batch in stream if batch.num_rows), None)

    def message_bytes(self, ranges: list[Range]) -> float:
        """How large a message of these ranges is, about: by samples, since a node counts messages and not their bytes."""
        rows = size = 0
        for part in ranges:
            for index in range(SAMPLES):
                batch = self.sample(part._replace(start=part.start + part.rows * index // SAMPLES), SAMPLE_MESSAGES)
                if batch is not None:
                    rows += batch.num_rows
                    size += batch.nbytes
        return size / rows if rows else 1.0

    # Loss

    def checked(self, name: str, stand: Stand, place: Place) -> Place:
        """The place, or another one further on where messages are gone; DataLost where that must not be."""
        if place.queue != stand.queue or place.next > stand.end:
            stand = self.stand(name, sure=True)  # Of nodes that share a log this one may only be behind.
        if place.queue != stand.queue:
            self.lost(
                f"The queue {name!r} was dropped and made again (it was number {place.queue} and is {stand.queue}): what was not read"
                " of it is gone"
            )
            return Place(stand.queue, stand.next, stand.next)
        if place.next < stand.next:
            why = (
                "the tap fell behind its bound and was cut"
                if stand.lost
                else "the tap was moved by somebody else, or by a later run of this query"
            )
            self.lost(f"The {self.what} {place.next} to {stand.next - 1} of {name!r} are gone: {why}")
            self.acknowledge(name, stand)
            return place._replace(next=stand.next)
        if place.next > stand.end:
            self.lost(
                f"The queue {name!r} ends at {stand.end}, before {place.next}, where reading stood: the node's data is older than the"
                " checkpoint"
            )
            return place._replace(next=stand.end)
        return place

    def acknowledge(self, name: str, stand: Stand) -> None:
        """Read on behind a cut."""
        if stand.lost:
            self.reach.patiently(partial(self._advance, name, stand.queue, stand.next))

    def vanished(self, name: str, error: DovetailError) -> None:
        self.lost(f"The queue {name!r} is gone: {error}")

    def lost(self, text: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLost(f"{text.rstrip('.')}. With failOnDataLoss=false reading goes on behind the gap.")
        log.warning("%s; going on behind the gap", text)

    # Release

    def release(self, offsets: Offsets) -> None:
        """Let go of what lies before these offsets. It may be said again, late, or never: the next release covers it."""
        if offsets.origin != self.origin or offsets.tap != self.options.tap:
            return
        for name, place in offsets.places.items():
            try:
                self.reach.patiently(partial(self._advance, name, place.queue, place.next))
            except (NoSuchQueue, NoSuchTap) as error:
                # Whether that is a loss is for the next batch to say. The other queues are released all the same.
                log.warning("%s: %s", name, error)

    def _advance(self, name: str, queue: int, sequence: int) -> None:
        if self.reach.open(self.options.namespace, name) == queue:
            self.reach.line.ask(requests.TapAdvance(queue, self.options.tap, sequence))
