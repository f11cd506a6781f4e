"""The verbs of facts taps over a replayed log. What they read was noted by apply (core/chronicle.py): pages in memory since the last
snapshot, and pages in blobs beside the log before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import error as struct_error
from typing import TYPE_CHECKING, NamedTuple

from dovetail.core import operation as op
from dovetail.core.chronicle import Page, PageHead
from dovetail.core.operation import Done, Outcome, Refusal, Why
from dovetail.core.taps import Tap
from dovetail.errors import BadRequest, CodecError, LimitExceeded, NoSuchTap, TapCut
from dovetail.limits import DELAY_MS_MAX, FACTS_MEMORY_BYTES_MAX, FACTS_READ_MAX, FACTS_TAPS_MAX, NAMESPACE_BYTES_MAX, TAP_NAME_BYTES_MAX
from dovetail.stores.batches import error_of
from dovetail.stores.committer import Committer
from dovetail.stores.store import FactsRead, TapFacts

if TYPE_CHECKING:
    from dovetail.core.state import State
    from dovetail.logs.log import Log

PAGES_KEPT = 8
"""Pages that were read from beside the log last: a reader comes back for the next thousands."""
_NUMBER_MAX = (1 << 64) - 1


class Piece(NamedTuple):
    """A page, wherever it lies."""

    first: int
    end: int
    time: int
    """Of its last fact."""
    size: int
    page: Page | None
    blob: str = ""
    at: int = 0


class StoreFacts:
    """For the store, which is one of these."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, int], Page] = {}

    if TYPE_CHECKING:
        committer: Committer
        state: State
        log: Log

        def now(self) -> int: ...

    @property
    def facts_leave_memory(self) -> bool:
        """Are they written beside the log at a snapshot?"""
        return self.log.lasting

    async def facts_open(self, namespace: str, name: str, start: int, age_ms: int, size: int) -> int:
        if not 1 <= len(name.encode()) <= TAP_NAME_BYTES_MAX or len(namespace.encode()) > NAMESPACE_BYTES_MAX:
            raise LimitExceeded(f"a facts tap's name has 1 to {TAP_NAME_BYTES_MAX} bytes, its namespace at most {NAMESPACE_BYTES_MAX}")
        if not 0 <= age_ms <= DELAY_MS_MAX or not 0 <= size < 1 << 63 or not 0 <= start <= _NUMBER_MAX:
            raise LimitExceeded(f"a facts tap's bound of {age_ms} ms and {size} bytes; at most {DELAY_MS_MAX} ms are allowed")
        if not self.facts_leave_memory:
            size = min(size or FACTS_MEMORY_BYTES_MAX, FACTS_MEMORY_BYTES_MAX)
        return _done(await self.committer.submit(op.FactsOpen(namespace, name, start, age_ms, size)))

    async def facts_advance(self, namespace: str, name: str, number: int) -> int:
        return _done(await self.committer.submit(op.FactsAdvance(namespace, name, min(number, _NUMBER_MAX))))

    async def facts_close(self, namespace: str, name: str) -> None:
        _done(await self.committer.submit(op.FactsClose(namespace, name)))

    def facts_taps(self, namespace: str | None = None) -> list[tuple[str, TapFacts]]:
        """(namespace, tap) of one namespace, or of all."""
        chronicle = self.state.chronicle
        return [
            (space, TapFacts(name, tap.next, chronicle.next, tap.lost_first, tap.lost_count))
            for (space, name), tap in chronicle.taps.items()
            if namespace is None or space == namespace
        ]

    def facts_age_ms(self, namespace: str, name: str) -> int:
        """How long ago the first fact happened that the tap has not let go of; within a page beside the log, how long ago its last did."""
        tap = self._tap(namespace, name)
        for piece in self._pieces(tap.next):
            happened = piece.page.time_of(max(tap.next, piece.first)) if piece.page is not None else piece.time
            return max(0, self.now() - happened)
        return 0

    @property
    def facts_bytes(self) -> int:
        chronicle = self.state.chronicle
        return sum([stretch.bytes for stretch in chronicle.stretches]) + sum([page.size for page in chronicle.pages])

    def facts_read(self, namespace: str, name: str, most: int, from_number: int | None = None) -> FactsRead:
        """Up to `most` facts from the tap's position on, or from a later number, in one page; those of other namespaces are left out."""
        tap = self._tap(namespace, name)
        start = tap.next if from_number is None else from_number
        if tap.lost_count and start <= tap.lost_first + tap.lost_count:
            raise TapCut(
                f"The facts tap {name!r} fell behind its bound: facts {tap.lost_first} to {tap.lost_first + tap.lost_count - 1} are lost;"
                f" advance to {tap.next} to go on.",
                lost_first=tap.lost_first,
                lost_count=tap.lost_count,
            )
        if start < tap.next:
            raise BadRequest(f"The facts tap {name!r} has advanced to {tap.next} and no longer keeps {start}.")
        end = min(start + min(most, FACTS_READ_MAX), self.state.chronicle.next)
        start, made = min(start, end), Page()
        for piece in self._pieces(start):
            if piece.first >= end:
                break
            page = piece.page or self._page_at(piece.blob, piece.at)
            made.join(page.cut(start, end, lambda queue: self._place(queue)[0] == namespace))
        names = {queue: self._place(queue)[1] for queue in {*made.queues, *made.targets} if queue and self._place(queue)[0] == namespace}
        return FactsRead(made, end, self.state.chronicle.next, names)

    def _place(self, queue: int) -> tuple[str, str]:
        """(namespace, name), also of a queue that is gone, as long as a fact of it is kept."""
        known = self.state.catalog.by_id.get(queue)
        if known is None:
            namespace, name, _ = self.state.chronicle.names.get(queue, ("", "", 0))
            return namespace, name
        return known

    def _tap(self, namespace: str, name: str) -> Tap:
        tap = self.state.chronicle.taps.get((namespace, name))
        if tap is None:
            raise NoSuchTap(f"There is no facts tap {name!r}.")
        return tap

    # Pages

    def _pieces(self, start: int) -> Iterator[Piece]:
        """Pages that hold facts from `start` on, in order, as far as somebody looks at them."""
        chronicle = self.state.chronicle
        for stretch in chronicle.stretches:
            if stretch.end > start:
                yield from self._in_blob(stretch.blob, start)
        for page in chronicle.pages:
            if page.end > start:
                yield Piece(page.first, page.end, page.times[-1], page.size, page)

    def _in_blob(self, blob: str, start: int) -> Iterator[Piece]:
        try:
            data, at = self.log.blobs.get(blob), 0
            while at < len(data):
                head = PageHead.of(data, at)
                if head.first + head.rows > start:
                    yield Piece(head.first, head.first + head.rows, head.time, head.size, None, blob, at)
                at = head.end
        except (struct_error, KeyError) as error:
            raise CodecError(f"{blob}: {error!r}") from None

    def pages_from(self, start: int) -> Iterator[Page]:
        """Whole pages that hold facts from `start` on, in memory or read from beside the log."""
        for piece in self._pieces(start):
            yield piece.page or Page.load(self.log.blobs.get(piece.blob)[piece.at :])

    def _page_at(self, blob: str, at: int) -> Page:
        key = blob, at
        known = self._pages.pop(key, None)
        if known is None:
            known = Page.load(self.log.blobs.get(blob)[at:])
        self._pages[key] = known
        while len(self._pages) > PAGES_KEPT:
            del self._pages[next(iter(self._pages))]
        return known

    # Bounds

    def facts_bounds(self) -> list[tuple[str, str, int]]:
        """(namespace, name, number) of the taps that are past their bound, and where the bound begins. Bytes count from the end."""
        found = []
        for (namespace, name), tap in self.state.chronicle.taps.items():
            target, pieces = tap.next, list(self._pieces(tap.next))
            left = sum([piece.size for piece in pieces])
            for piece in pieces:
                held = max(piece.first, target)
                left -= piece.size
                if (tap.age_ms and piece.time < self.now() - tap.age_ms) or (tap.bytes and left >= tap.bytes):
                    target = piece.end
                    continue
                page = piece.page or self._page_at(piece.blob, piece.at)
                if tap.age_ms:
                    held = max(held, page.number_at(self.now() - tap.age_ms))
                if tap.bytes and left + piece.size > tap.bytes:
                    rows = piece.end - piece.first
                    held = max(held, piece.end - (tap.bytes - left) * rows // piece.size)
                target = max(target, held)
                break
            if target > tap.next:
                found.append((namespace, name, target))
        return found


def _done(outcome: Outcome) -> int:
    if isinstance(outcome, Refusal):
        if outcome.why is Why.TOO_MANY_TAPS:
            raise LimitExceeded(f"The namespace has {FACTS_TAPS_MAX} facts taps, as many as it may have.")
        if outcome.why is Why.NO_TAP:
            raise NoSuchTap("There is no facts tap of that name.")
        raise error_of(outcome)
    assert isinstance(outcome, Done)
    return outcome.value
