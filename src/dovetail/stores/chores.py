"""What a store does for itself, off the hot path: snapshots, trimming, carrying, expiring, cutting taps that fell behind.

All of it is due by bytes written, never by time alone, except expiry; nothing is written while idle. Every step can be repeated.

While the disk is full the bytes say nothing: pushes are refused, and completes are few bytes. Then rounds are due by time, as soon as
anything has changed, and in pairs: trimming keeps the older of two snapshots, so that what was emptied is room only behind both.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
from typing import TYPE_CHECKING

from dovetail.core import clearing, codec
from dovetail.core import operation as op
from dovetail.core.chunk import SIZE
from dovetail.core.codec import Item
from dovetail.core.column import Column
from dovetail.core.operation import Push
from dovetail.errors import DovetailError, StorageFull
from dovetail.limits import STAGE_KEPT_MS
from dovetail.stores.snapshots import STAGED, Survey

if TYPE_CHECKING:
    from dovetail.stores.replayed import Replayed

_logger = logging.getLogger("dovetail.stores")

CARRY_BATCH_BYTES = 2 * 1024
"""Small, and with a pause behind it: callers wait for one such batch at most, and a batch of 8 KiB took two milliseconds."""
CARRY_PAUSE_S = 0.003
EXPIRE_EVERY_MS = 10_000
CHILD_S_MAX = 600
RETRY_BYTES = 8 * 1024 * 1024
FULL_EVERY_MS = 2_000
FULL_REST = 10
"""While the disk is full, rounds take a tenth of the time at most."""
FULL_CARRY_BYTES = 256 * 1024
"""Of a round, while the disk is full: what is carried is written in the reserve, which is there for completes."""


class Chores:
    def __init__(self, store: Replayed, snapshot_bytes: int) -> None:
        self._store = store
        self._due_bytes = snapshot_bytes
        self._bytes = store.tail_cost
        self._next = snapshot_bytes
        self._task: asyncio.Task[None] | None = None
        self._expiry: asyncio.Task[None] | None = None
        self._relief: asyncio.Task[None] | None = None
        self._round_lock = asyncio.Lock()
        self.snapshots = self.failures = self.carried = 0
        self.last: Survey | None = None

    def start(self) -> None:
        self._expiry = asyncio.get_running_loop().create_task(self._expire_now_and_then())
        self._store.committer.on_full = self._full
        self.count(0)

    async def stop(self) -> None:
        self._store.committer.on_full = None
        for task in (self._task, self._expiry, self._relief):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._task = self._expiry = self._relief = None
        async with self._round_lock:
            # A snapshot that somebody asked for is waited for.
            pass

    def count(self, size: int) -> None:
        """So many bytes went by; a snapshot may be due."""
        self._bytes += size
        if self._bytes >= self._next and self._task is None and self._expiry is not None:
            self._task = asyncio.get_running_loop().create_task(self._round())

    async def _round(self) -> None:
        try:
            await self.snapshot()
        except (DovetailError, OSError, ValueError, TimeoutError) as error:
            self.failures += 1
            self._next = self._bytes + RETRY_BYTES
            _logger.error("no snapshot was made: %s", error)
        finally:
            self._task = None

    def _full(self) -> None:
        """A push was refused because the disk is full."""
        if self._relief is None:
            self._relief = asyncio.get_running_loop().create_task(self._relieve())

    async def _relieve(self) -> None:
        """Make room for as long as pushes are refused. Nobody need send for it: whoever empties a queue finds room before long."""
        store = self._store
        seen = -1
        try:
            while store.committer.full:
                pause_ms = FULL_EVERY_MS
                if store.state.position != seen:
                    began = store.clock.boot_ms()
                    try:
                        await self._make_room()
                    except (DovetailError, OSError, ValueError, TimeoutError) as error:
                        self.failures += 1
                        _logger.error("the disk is full, and no room was made: %s", error)
                    pause_ms = max(pause_ms, FULL_REST * (store.clock.boot_ms() - began))
                    seen = store.state.position
                await self._sleep(pause_ms)
        finally:
            self._relief = None

    async def _make_room(self) -> None:
        store = self._store
        for _ in range(2):
            try:
                await self.snapshot()
            except StorageFull:
                # Of two snapshots the older one may be the room that the next one needs. The newer one was read back when it was made.
                if not store.snapshots.drop_older():
                    raise
                await self.snapshot()
            # Something small is written between them: two snapshots of one position would be one.
            await store.committer.submit(op.Trim(store.state.trimmed))

    async def snapshot(self) -> Survey:
        """One round: a snapshot in a child, then cut, trim and carry by what the child saw. One round at a time."""
        async with self._round_lock:
            return await self._snapshot()

    async def _snapshot(self) -> Survey:
        store = self._store
        self._bytes, self._next = 0, self._due_bytes
        survey = await self._survey()
        if store.log.lasting:
            store.snapshots.done(store.state, survey)
        self.snapshots += 1
        self.last = survey
        await self._cut_taps()
        await self._cut_facts()
        await self._trim(survey)
        store.snapshots.sweep(store.state)
        await self._carry(survey)
        return survey

    async def _survey(self) -> Survey:
        if not self._store.log.lasting:
            # Nothing outlives the process, so there is nothing to write; only what may be trimmed is looked up.
            return self._store.snapshots.write(self._store.state, survey_only=True)
        return await self._in_child()

    async def _in_child(self) -> Survey:
        """Fork: the child has the state as it is now. (The other way, replaying sealed stretches in a helper, costs the apply twice.)"""
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            self._child(reading, writing, parent)
        os.close(writing)
        os.set_blocking(reading, False)
        parts: list[bytes] = []
        finished: asyncio.Future[None] = loop.create_future()

        def readable() -> None:
            try:
                part = os.read(reading, 1 << 16)
            except BlockingIOError:
                return
            if part:
                parts.append(part)
            elif not finished.done():
                finished.set_result(None)

        loop.add_reader(reading, readable)
        try:
            await asyncio.wait_for(finished, CHILD_S_MAX)
        finally:
            loop.remove_reader(reading)
            os.close(reading)
            if not finished.done() or finished.cancelled():
                os.kill(child, signal.SIGKILL)
            await loop.run_in_executor(None, os.waitpid, child, 0)
        answer = json.loads(b"".join(parts) or b'{"error": "the child died"}')
        if "error" in answer:
            raise StorageFull(answer["error"]) if answer["error"].startswith(StorageFull.__name__) else OSError(answer["error"])
        return Survey(*answer["survey"])

    def _child(self, reading: int, writing: int, parent: int) -> None:
        """Never returns. It shares the parent's files and must close none of them by the usual ways, so it leaves by _exit.

        It gives up as soon as the parent is gone: another node may have the folder by then.
        """

        def go_on() -> None:
            if os.getppid() != parent:
                os._exit(1)

        try:
            os.close(reading)
            self._store.log.in_child()
            with contextlib.suppress(OSError):
                os.nice(5)
            gc.disable()
            try:
                answer = {"survey": self._store.snapshots.write(self._store.state, go_on)}
            except BaseException as error:
                answer = {"error": f"{type(error).__name__}: {error}"}  # type: ignore[dict-item]  # one key or the other
            data = json.dumps(answer).encode()
            while data:
                data = data[os.write(writing, data) :]
        finally:
            os._exit(0)

    async def _trim(self, survey: Survey) -> None:
        """Never past the older of the two newest snapshots, nor past what lives or what a tap may read. An entry first, then the files."""
        store = self._store
        limits = [survey.floor]
        if store.log.lasting:
            limits.append(store.snapshots.positions[0] if len(store.snapshots.positions) > 1 else 0)
        for lane in store.state.lanes.values():
            needed = lane.taps.needed_address()
            if needed is not None:
                limits.append(needed)
        position = min(limits)
        if position > max(store.state.trimmed, store.log.first):
            await store.committer.submit(op.Trim(position))
            store.log.trim(position)

    async def _carry(self, survey: Survey) -> None:
        """Write what pins the prefix again, oldest first, while under half of the log is alive or tapped: once for each byte, about."""
        store = self._store
        log = store.log
        tapped = min((lane.taps.needed_address() or log.tail for lane in store.state.lanes.values()), default=log.tail)
        if (survey.live_bytes + log.bytes_since(tapped)) * 2 >= log.bytes_kept or tapped <= survey.floor:
            return
        target = log.first + (log.tail - log.first) // 2
        left = FULL_CARRY_BYTES if store.committer.full else self._due_bytes // 2
        staged = {record.address: name for name, stage in store.state.stages.by_id.items() for record in stage.records}
        for lowest, queue, base in survey.pins:
            if lowest > target or left <= 0:
                return
            if queue == STAGED:
                left -= await self._carry_staged(staged.get(lowest), lowest)
            else:
                left -= await self._carry_chunk(queue, base, target, left)

    async def _carry_staged(self, stage: bytes | None, address: int) -> int:
        """Carry one record of a stage that is still open. All of it goes at once: its messages have no places of their own yet."""
        record = self._store.log.fetch(address) if stage is not None else None
        if stage is None or record is None:
            return 0
        push = codec.decode_push(bytes(codec.push_in(record)))
        await self._store.committer.submit(op.StageCarry(stage, address, push))
        self.carried += len(push.bodies)
        await asyncio.sleep(CARRY_PAUSE_S)
        return len(record)

    async def _carry_chunk(self, queue: int, base: int, target: int, most: int) -> int:
        """Carry the live messages of one chunk that lie below `target`, about `most` bytes of them, a little at a time so that callers are
        not held up."""
        total = size = 0
        waiting: list[asyncio.Future[op.Outcome]] = []
        for at in range(SIZE):
            made = self._carry_of(queue, base + at, target)
            if made is not None:
                waiting.append(self._store.committer.submit(made))
                size += len(made.push.bodies.blob) + 128
                self.carried += 1
            if waiting and (size >= CARRY_BATCH_BYTES or at == SIZE - 1):
                await asyncio.gather(*waiting)
                await asyncio.sleep(CARRY_PAUSE_S)
                total += size
                waiting, size = [], 0
                if total >= most:
                    break
        return total

    def _carry_of(self, queue: int, sequence: int, target: int) -> op.Carry | None:
        lane = self._store.state.lanes.get(queue)
        place = lane.find(sequence) if lane is not None else None
        if place is None:
            return None
        address, item = place[0].place(place[1])
        record = self._store.log.fetch(address) if address < target else None
        if record is None:
            return None
        # One message is looked up in its record; decoding all of a large record for each of its messages took most of a carry's time.
        one = Item(record, item)
        alone = Push(
            (queue,),
            Column.of([one.body]),
            None,
            Column.of([one.group]) if one.group else None,
            None,
            one.id or None,
            Column.of([one.attributes]) if one.attributes else None,
        )
        return op.Carry(queue, sequence, address, alone)

    async def _cut_taps(self) -> None:
        """A tap past its bound is cut to where the bound begins; its next read names what it lost."""
        store = self._store
        now = store.now()
        for lane in list(store.state.lanes.values()):
            for name, tap in list(lane.taps.by_name.items()):
                target = tap.next
                for run in store.tap_runs(lane, tap.next):
                    old = tap.age_ms and run.time < now - tap.age_ms
                    far = tap.bytes and store.log.bytes_since(run.address) > tap.bytes
                    if not old and not far:
                        break
                    target = run.first + run.length
                if target > tap.next:
                    _logger.warning("the tap %r of queue %d fell behind its bound and is cut to %d", name, lane.queue, target)
                    await store.committer.submit(op.TapCut(lane.queue, name, target))

    async def _cut_facts(self) -> None:
        store = self._store
        for namespace, name, target in store.facts_bounds():
            _logger.warning("the facts tap %r of %r fell behind its bound and is cut to %d", name, namespace, target)
            await store.committer.submit(op.FactsCut(namespace, name, target))

    async def _expire_now_and_then(self) -> None:
        """What is past its retention goes, once the clocks can be trusted. Until then old messages are still delivered."""
        while True:
            await self._sleep(EXPIRE_EVERY_MS)
            await self.now_and_then()

    async def _sleep(self, pause_ms: int) -> None:
        clock, woken = self._store.clock, asyncio.Event()
        handle = clock.call_at(clock.boot_ms() + pause_ms, woken.set)
        try:
            await woken.wait()
        finally:
            handle.cancel()

    async def now_and_then(self) -> None:
        if self._store.time.trusted():
            await self.expire()
            await self.expire_stages()

    async def expire_stages(self) -> int:
        """Stages that nobody published within a day are given up; returns how many."""
        store = self._store
        before = store.now() - STAGE_KEPT_MS
        oldest = store.state.stages.oldest()
        if oldest is None or oldest >= before:
            return 0
        outcome = await store.committer.submit(op.StageExpire(before))
        count = outcome.value if isinstance(outcome, op.Done) else 0
        _logger.warning("%d stages were not published within a day and are given up", count)
        return count

    async def expire(self) -> int:
        """Expire every queue whose oldest message is past its retention; returns how many went."""
        store = self._store
        now, count = store.now(), 0
        for queue, lane in list(store.state.lanes.items()):
            retention = lane.attributes.retention_ms
            if retention and clearing.has_expired(lane, now - retention, now):
                outcome = await store.committer.submit(op.Expire(queue, now - retention))
                count += outcome.value if isinstance(outcome, op.Done) else 0
        return count
