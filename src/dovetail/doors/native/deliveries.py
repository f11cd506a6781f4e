"""Frames of deliveries, cut out of the records in which the messages lie: columns are joined, no message is touched.

Neighbours that were handed out together share a run, also where they lie in several records, as long as they have everything in common
that a run says once. One seal stands for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from dovetail.core import slices
from dovetail.core.slices import Piece, Slice
from dovetail.doors.native.answers.messages import ATTRIBUTES, DELIVERIES, GROUPS, IDS, RUN
from dovetail.doors.native.frames import HEADER, Data, Kind
from dovetail.service.broker import Handed, Lane

CHUNK_SHIFT = 10
"""Runs end where the lane's chunks do (1024 sequences), so that what settles a run finds its messages side by side."""
_NO_SEAL = bytes(8)
PADDING = tuple(bytes(count) for count in range(4))
SINGLE = Struct("<IBBHQ QII QQIIQQQQ8s II")
"""A frame of one message up to its body: header, deliveries, run, offsets."""
SINGLE_BYTES = SINGLE.size - HEADER.size


class Cut(NamedTuple):
    """A run that was handed out, and its columns."""

    handed: Handed
    slice: Slice
    size: int
    """Bytes of bodies, groups and attributes."""


def cut(runs: Sequence[Handed]) -> list[Cut]:
    return [_cut(one) for one in runs]


def _cut(one: Handed) -> Cut:
    part = slices.slice_of(one.record, one.item, one.length)
    plain = part.groups is None and part.attributes is None
    return Cut(one, part, len(part.bodies.blob) if plain else slices.size_of(part))


def fit(cuts: list[Cut], bytes_max: int) -> tuple[list[Cut], list[tuple[int, int, int]]]:
    """(what fits, and of the rest what is to be taken back). The first message always fits."""
    left = bytes_max
    for index, one in enumerate(cuts):
        if one.size > left:
            return _fit_part(cuts, index, left)
        left -= one.size
    return cuts, []


def _fit_part(cuts: list[Cut], index: int, left: int) -> tuple[list[Cut], list[tuple[int, int, int]]]:
    kept = cuts[:index]
    handed, part, _ = cuts[index]
    count = 0
    for size in slices.message_sizes(part):
        left -= size
        if left < 0 and (kept or count):
            break
        count += 1
        if left < 0:
            break
    if count:
        kept.append(_cut(handed._replace(length=count)))
    rest = [one.handed for one in cuts[index:]]
    delivery = handed.delivery + count if handed.delivery else 0
    rest[0] = handed._replace(sequence=handed.sequence + count, delivery=delivery, length=handed.length - count)
    return kept, [(one.sequence, one.delivery, one.length) for one in rest if one.length]


def frame(number: int, lane: Lane, cuts: Sequence[Cut], *, deleted: bool = False) -> bytes:
    """One DELIVERIES frame."""
    if len(cuts) == 1 and cuts[0].slice.ids is None and not cuts[0].handed.id:
        (handed, part, _) = cuts[0]
        if part.groups is None and part.attributes is None:
            return _plain_frame(number, lane, handed, part.bodies, deleted)
    runs = _runs(lane, cuts, deleted)
    parts: list[Data] = [b"", DELIVERIES.pack(lane.queue, sum(one.handed.length for one in cuts), len(runs)), *runs]
    flags = _columns(parts, cuts)
    parts[0] = HEADER.pack(sum(map(len, parts)), Kind.DELIVERIES, flags, 0, number)
    return b"".join(parts)


def _plain_frame(number: int, lane: Lane, handed: Handed, bodies: Piece, deleted: bool) -> bytes:
    """One run of nothing but bodies: what nearly all frames are."""
    sequence, delivery, length, receives, sent_at, first_received, until, source, _, _, _ = handed
    if deleted:
        delivery = 0
    seal = lane.seal_run(sequence, delivery, length) if delivery else _NO_SEAL
    offsets, blob = bodies
    size = len(blob)
    padding = -size & 3
    if length == 1:
        head = SINGLE.pack(
            SINGLE_BYTES + size + padding, Kind.DELIVERIES, 0, 0, number, lane.queue, 1, 1, sequence, delivery, 1, receives, sent_at,
            first_received, until, source, seal, 0, size,
        )  # fmt: skip
        return b"".join((head, blob, PADDING[padding]))
    start = int.from_bytes(offsets[:4], "little")
    if start:
        offsets = memoryview(slices.moved(offsets, -start))
    return b"".join(
        (
            HEADER.pack(DELIVERIES.size + RUN.size + len(offsets) + size + padding, Kind.DELIVERIES, 0, 0, number),
            DELIVERIES.pack(lane.queue, length, 1),
            RUN.pack(sequence, delivery, length, receives, sent_at, first_received, until, source, seal),
            offsets,
            blob,
            PADDING[padding],
        )
    )


def _runs(lane: Lane, cuts: Sequence[Cut], deleted: bool) -> list[bytes]:
    merged: list[list[int]] = []
    last: list[int] | None = None
    for handed, _, _ in cuts:
        sequence, delivery, length, *common = handed[:8]
        if deleted:
            delivery = 0
        if (
            last is not None
            and last[0] + last[2] == sequence
            and (last[1] + last[2] == delivery if delivery else not last[1])
            and last[3:] == common
            and last[0] >> CHUNK_SHIFT == sequence >> CHUNK_SHIFT
        ):
            last[2] += length
        else:
            last = [sequence, delivery, length, *common]
            merged.append(last)
    return [RUN.pack(*run, lane.seal_run(run[0], run[1], run[2]) if run[1] else _NO_SEAL) for run in merged]


def _columns(parts: list[Data], cuts: Sequence[Cut]) -> int:
    """Put the columns behind the runs; the flags say which there are."""
    flags = 0
    if any(one.slice.ids is not None or one.handed.id for one in cuts):
        flags |= IDS
        parts += [slices.own_ids(one.slice, one.handed.length, one.handed.id) for one in cuts]
    if any(one.slice.groups is not None for one in cuts):
        flags |= GROUPS
        parts += slices.joined([one.slice.groups or slices.empty(one.handed.length) for one in cuts])
    if any(one.slice.attributes is not None for one in cuts):
        flags |= ATTRIBUTES
        parts += slices.joined([one.slice.attributes or slices.empty(one.handed.length) for one in cuts])
    parts += slices.joined([one.slice.bodies for one in cuts])
    return flags


def empty_frame(number: int, queue: int) -> bytes:
    return HEADER.pack(DELIVERIES.size + 4, Kind.DELIVERIES, 0, 0, number) + DELIVERIES.pack(queue, 0, 0) + bytes(4)
