"""Reading a range of one queue, in order, as Arrow: what an executor does. A few reads are under way at any time; a line that breaks is
made again, and reading goes on behind what was already handed on. A range gives the same messages however often it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from dovetail.core.message import id_of
from dovetail.doors.native.codec import answers, requests
from dovetail.errors import BatchRefused, DovetailError, NoSuchQueue, NoSuchReservation
from dovetail.limits import BATCH_MESSAGES_MAX, FACTS_READ_MAX
from dovetail.spark import facts, shape
from dovetail.spark.behind import Behind, confirm
from dovetail.spark.offsets import Range
from dovetail.spark.options import Options
from dovetail.spark.reach import Reach

UNDER_WAY = 3
"""The node cuts the next read out of the log while we hand the one before to Spark."""
READ_MESSAGES = 16_384
"""What one answer holds at most; of large messages it holds fewer."""


class Read(NamedTuple):
    batch: pa.RecordBatch
    next: int


def ranged(reach: Reach, options: Options, part: Range) -> Iterator[pa.RecordBatch]:
    """Every message of the range, of a tap or of a reserved batch, as the node's Arrow has it."""
    at, attempts, sure = part.start, reach.attempts(), False
    while at < part.end:
        try:
            for read in _reads(reach, options, part, at):
                at, sure = read.next, False
                attempts.went()
                if read.batch.num_rows:
                    yield read.batch
        except (BatchRefused, NoSuchReservation):
            if sure:
                raise
            # Another node may have set it aside, and this one does not know yet.
            reach.patiently(partial(_confirmed, reach, options, part))
            sure = True
        except DovetailError as error:
            reach.drop(error)
            attempts.failed(error)


def _confirmed(reach: Reach, options: Options, part: Range) -> None:
    opened(reach, options, part)
    confirm(reach, options, part.queue)


def _reads(reach: Reach, options: Options, part: Range, at: int) -> Iterator[Read]:
    if not options.facts:
        opened(reach, options, part)
    line = reach.line
    asked: dict[int, tuple[int, int]] = {}
    held: dict[int, Read] = {}
    size, ahead, following = FACTS_READ_MAX if options.facts else READ_MESSAGES, 1, at

    def ask(start: int, end: int) -> None:
        asked[line.send(_request(options, part, start, end - start))] = (start, end)

    try:
        while at < part.end:
            if at not in held and not any(start == at for start, _ in asked.values()):
                # Behind an answer that came out short, up to the next one that is asked for or there already.
                later = [start for start, _ in asked.values() if start > at] + [start for start in held if start > at]
                ask(at, min([at + size, part.end, *later]))
                following = max(following, min([at + size, part.end, *later]))
            while len(asked) + len(held) < ahead and following < part.end:
                ask(following, min(following + size, part.end))
                following = min(following + size, part.end)
            while at not in held:
                number, answer = line.receive()
                start, end = asked.pop(number)
                held[start] = Read(*facts.told(answer, start, end)) if options.facts else _read(answer, part, end)
                if held[start].next < end:
                    # As many as one frame takes; a little fewer, so that the next ones come out whole.
                    size = max(1, 7 * (held[start].next - start) // 8)
            read = held.pop(at)
            ahead, at = UNDER_WAY, read.next
            yield read
    finally:
        if asked:
            # Whoever reads has had enough: nobody will take these answers.
            reach.drop()


def _request(options: Options, part: Range, start: int, most: int) -> requests.Request:
    if options.facts:
        return facts.request(options, start, most)
    if part.batch < 0:
        return requests.TapRead(part.queue, options.tap, start, most, arrow=True)
    return requests.ReserveRead(part.queue, options.reservation, part.batch, start, most, arrow=True)


def _read(answer: answers.Arrow, part: Range, end: int) -> Read:
    with pa.ipc.open_stream(pa.py_buffer(answer.stream)) as stream:
        batches = list(stream)
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=stream.schema)
    if part.batch >= 0:
        if not batch.num_rows:
            raise BatchRefused(f"batch {part.batch} of the reservation has fewer messages than it had")
        return Read(batch, answer.next)
    if not batch.num_rows and answer.end < end:
        raise Behind(
            f"The queue {part.name!r} ends at {answer.end}, before {end}: the node is behind, or its data is older than what is read"
        )
    if not batch.num_rows or answer.next >= end:
        # Nothing is left below the end: what is missing there was settled before the tap was opened.
        return Read(shape.below(batch, end), end)
    return Read(batch, answer.next)


def opened(reach: Reach, options: Options, part: Range) -> None:
    """The queue on the line that is used now, and it is the one that is meant."""
    found = reach.open(options.namespace, part.name)
    if found != part.queue:
        reach.forget(options.namespace, part.name)
        raise NoSuchQueue(f"The queue {part.name!r} was dropped and made again: it is number {found} now, and {part.queue} was to be read")


def waiting(reach: Reach, options: Options, part: Range) -> Iterator[pa.RecordBatch]:
    """What waits in the range now: a look, which takes nothing from anybody."""
    after = part.start - 1
    while after < part.end - 1:
        messages: answers.Messages = reach.patiently(partial(_look, reach, options, part, after))
        if not messages.sequences:
            return
        salt = int.from_bytes(reach.line.welcome.salt, "big")
        batch = shape.below(
            shape.looked(messages, part.name, options.columns if "sequence" in options.columns else ("sequence", *options.columns)),
            part.end,
        )
        yield _named(batch, part.queue, salt).select(list(options.columns))
        after = messages.next - 1


def _look(reach: Reach, options: Options, part: Range, after: int) -> Any:
    opened(reach, options, part)
    return reach.line.ask(requests.Peek(part.queue, BATCH_MESSAGES_MAX, after))


def _named(batch: pa.RecordBatch, queue: int, salt: int) -> pa.RecordBatch:
    """With the ids that are made of queue and sequence."""
    at = batch.schema.get_field_index("id")
    if at < 0 or not batch.column(at).null_count:
        return batch
    sequences = batch.column("sequence").to_pylist()
    ids = [own or id_of(queue, sequence, salt) for own, sequence in zip(batch.column(at).to_pylist(), sequences, strict=True)]
    return batch.set_column(at, batch.schema.field(at), pa.array(ids, pa.binary()))


def read(reach: Reach, options: Options, part: Range) -> Iterator[pa.RecordBatch]:
    """Every message of the range in the columns that were asked for."""
    if not options.tap and part.batch < 0:
        yield from waiting(reach, options, part)
        return
    try:
        for batch in ranged(reach, options, part):
            yield facts.shaped(batch, options.columns) if options.facts else shape.shaped(batch, part.name, options.columns)
    except BatchRefused as error:
        raise BatchRefused(
            f"{part.name}: {error} It was released by an operator, or settled by another driver, while it was read"
        ) from None
