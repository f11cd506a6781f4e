"""The stream of mode=reserve: Spark as one of those who receive from a queue. Every message is with exactly one of them.

Spark's order for a batch is: latestOffset → its write-ahead log → partitions → tasks → the sink's commit → its commit log → latestOffset.
So `latestOffset` only plans: it says which batches of the reservation come next, and nothing is taken from anybody before Spark has that
in its log. `partitions` takes them, or finds them taken, under the numbers that the log has; a replay finds the same messages. And since
Spark asks where to go on from a batch only when that is in its commit log, `latestOffset` is also where it is settled.

Refused: to lease, and to acknowledge when Spark calls commit. A lease cannot be asked for again by the number of a batch, and commit comes
one batch late and never for the last one: stopping and starting is enough to get messages twice. Refused too: to take in `latestOffset`.
What a driver had taken that died before its log could not be told from what belongs to another checkpoint.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from dovetail.errors import BadRequest, NoSuchQueue
from dovetail.limits import RESERVE_MESSAGES_MAX, RESERVED_BATCHES_MAX
from dovetail.spark.offsets import Range
from dovetail.spark.options import Options
from dovetail.spark.owner import Held, Owner
from dovetail.spark.planning import limited, shared
from dovetail.spark.reader import Part, Reader
from dovetail.spark.shares import Share, Shares

ROWS_MAX = RESERVE_MESSAGES_MAX * RESERVED_BATCHES_MAX // 2
"""Of one queue in one micro-batch, also where there is no limit."""
EMPTY_PAUSE_S = 1.0
"""When a batch came out empty: others were quicker, or what is visible is kept from us (by the discipline of tenants, say). Each try is a
micro-batch, so they do not follow at once."""


class CompetingReader(Reader):
    def __init__(self, options: Options, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._owner: Owner | None = None
        self._known: dict[str, Any] | None = None
        self._until: dict[str, int] | None = None
        """For availableNow: queue → how many messages it had at the start and we have not asked for."""
        self._pause_until = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_owner": None}

    @property
    def owner(self) -> Owner:
        if self._owner is None:
            self._owner = Owner(self.survey)
        return self._owner

    # Offsets

    def initialOffset(self) -> dict[str, Any]:
        return self._told({name: self.owner.beginning(name) for name in self.survey.names()}).told()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        plan, waiting = self._next(self._shares(start))
        everything = isinstance(limit, ReadAllAvailable)
        taken = self._taken({name: rows for name, rows in waiting.items() if not plan[name].rows}, everything=everything)
        for name, rows in taken.items():
            batches = -(-rows // RESERVE_MESSAGES_MAX)
            plan[name] = plan[name]._replace(next=plan[name].first + batches, rows=rows)
            waiting[name] -= rows
        end = self._told(plan)
        self._known = end.told(waiting)
        return end.told() if any(share.rows for share in plan.values()) else start

    def _next(self, before: Shares) -> tuple[dict[str, Share], dict[str, int]]:
        """What comes behind these shares, which are finished and are settled here, with nothing in it yet; and queue → messages that can be
        had."""
        plan, waiting = {}, {}
        for name in sorted({*self.survey.names(), *before.shares}):
            share = before.shares.get(name)
            try:
                queue, waiting[name] = self.owner.waiting(name)
            except NoSuchQueue as error:
                if share is None:
                    raise  # It never was there: a name that is spelled wrongly is no loss.
                self.survey.vanished(name, error)
                continue
            if share is not None and share.queue != queue:
                self.survey.lost(f"The queue {name!r} was dropped and made again: what was not read of it is gone")
                share = None
            if share is None:
                share = self.owner.beginning(name)
            if self.owner.settle(name, share):
                _, waiting[name] = self.owner.waiting(name)  # Groups may have been waiting for it.
            plan[name] = self._behind(share, self.owner.own(name, share, done=True))
        return plan, waiting

    @staticmethod
    def _behind(share: Share, held: Held) -> Share:
        following = max(share.next, held.last + 1)
        plan = Share(held.queue, following, following, 0, held.last, held.epoch)
        if held.batches:
            # They are another checkpoint's, and failOnDataLoss=false says to go on all the same: with them.
            plan = plan._replace(first=min(held.batches), next=held.last + 1, rows=max(1, sum(held.batches.values())))
        return plan

    def _taken(self, waiting: dict[str, int], *, everything: bool) -> dict[str, int]:
        """Queue → messages that the next micro-batch asks for."""
        if self._until is not None:
            waiting = {name: min(count, self._until.get(name, 0)) for name, count in waiting.items()}
        ranges = [Range(name, 0, 0, min(count, ROWS_MAX)) for name, count in waiting.items() if count]
        if not everything:
            if time.monotonic() < self._pause_until or (self._until is None and self.short(sum(one.rows for one in ranges))):
                return {}
            ranges = limited(ranges, self._rows_max(ranges)) if ranges else []
        taken = {one.name: one.rows for one in ranges}
        if self._until is not None:
            self._until = {name: left - taken.get(name, 0) for name, left in self._until.items()}
        return taken

    def _rows_max(self, ranges: list[Range]) -> int:
        rows = self.options.rows_max or sum(one.rows for one in ranges)
        if self.options.bytes_max:
            rows = min(rows, max(1, int(self.options.bytes_max / self.owner.message_bytes([one.name for one in ranges]))))
        return rows

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """With what still waits, which is the lag."""
        return self._known

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = {name: self.owner.waiting(name, sure=True)[1] for name in self.survey.names()}

    def _told(self, shares: dict[str, Share]) -> Shares:
        return Shares(self.survey.origin, self.options.reservation, shares)

    def _shares(self, told: dict[str, Any]) -> Shares:
        shares = Shares.of(told)
        if shares.reservation != self.options.reservation:
            raise BadRequest(
                f"the checkpoint belongs to the reservation {shares.reservation!r}, and option reservation says"
                f" {self.options.reservation!r}: a new one needs a new checkpoint"
            )
        self.check_origin(shares.origin)
        return shares

    # A batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []  # Nothing new: what the text names was read in the micro-batch before.
        ranges = []
        for name, share in sorted(self._shares(end).shares.items()):
            if share.first < share.next:
                ranges += [Range(name, share.queue, 0, count, batch) for batch, count in self._take(name, share)]
        if not ranges:
            self._pause_until = time.monotonic() + EMPTY_PAUSE_S
        addresses = tuple(self.survey.addresses())
        return [Part(one, addresses) for one in shared(ranges, self.options.partitions)]

    def _take(self, name: str, share: Share) -> list[tuple[int, int]]:
        try:
            if self.owner.waiting(name)[0] == share.queue:
                return self.owner.take(name, share)
            self.survey.lost(f"The queue {name!r} was dropped and made again: what was to be read of it is gone")
        except NoSuchQueue as error:
            self.survey.vanished(name, error)
        return []

    def commit(self, end: dict[str, Any]) -> None:
        """The batch that ended there is in Spark's commit log. `latestOffset` has settled it by then; this is for a Spark that asks in
        another order."""
        for name, share in self._shares(end).shares.items():
            if self.owner.owns(name, share):
                self.owner.settle(name, share)
