"""Recovery: what the files hold after a crash, where the log ends, and whether what is broken was ever durable.

A frame that cannot be read at P is one of two things. If any whole frame further on says `synced > P`, then P was durable once and is
*damaged*: it is refused with its exact place, never read as the end. Otherwise nobody was ever told that P is there: it is a *torn tail*.
It is cut at P and reported, and everything behind the cut is *scrubbed* away before anything new is written, because an unsynced frame
that happened to survive there would come back to life behind the next one. Should the scrub itself be lost (its sync fails, the page
cache shows zeros, the platter has not got them), a second guard holds: along the log `synced` never falls, and a frame that says less
than the one before it is a ghost.

What follows the last `synced` mark may lie in the page cache only (after kill −9), or not even be dirty there any more (after a sync
that failed). So it is written again, byte for byte, and synced, before anybody is told that it is durable.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ...errors import CodecError, Damaged
from ..frame import HEADER_BYTES, decode, encode, peek
from .disk import Disk
from .segment import Segment, open_segment, segment_names
from .space import is_full

_log = logging.getLogger("dovetail.logs.local")
_BLOCK_BYTES = 64 * 1024
_ZEROS = bytes(_BLOCK_BYTES)


@dataclass(frozen=True)
class Recovered:
    """A torn tail that was cut: how many bytes lay behind the cut, and at which position it is."""

    torn_bytes: int
    at: int
    file: str
    offset: int


def open_segments(disk: Disk, log_id: bytes, *, write: bool = True) -> list[Segment]:
    """All segments in order; Damaged where one is missing, FormatUnknown or Damaged where one is not ours."""
    segments: list[Segment] = []
    try:
        for name in segment_names(disk):
            segment = open_segment(disk, name, write=write)
            segments.append(segment)
            if segment.log_id != log_id:
                raise Damaged(f"{disk.describe(name)}: the segment belongs to another log ({segment.log_id.hex()}, not {log_id.hex()})")
            if len(segments) > 1 and segment.previous != segments[-2].start:
                raise Damaged(
                    f"{disk.describe(name)}: the segment before it, {segment.previous:016x}.seg, is missing"
                    f" (found {segments[-2].start:016x}.seg instead)"
                )
    except BaseException:
        for segment in segments:
            segment.close()
        raise
    return segments


def written_bytes(view: memoryview, start: int) -> int:
    """How many bytes from `start` on, up to the last one that is not zero (rounded up to a block)."""
    end = len(view)
    while end > start:
        begin = max(start, end - _BLOCK_BYTES)
        # As bytes: memoryviews are compared element by element, twenty times slower.
        if bytes(view[begin:end]) != _ZEROS[: end - begin]:
            return len(bytes(view[start:end]).rstrip(b"\0"))
        end = begin
    return 0


def highest_synced(segment: Segment, offset: int, salt: int) -> int:
    """The highest `synced` of any whole header from `offset` on, wherever it lies; -1 where there is none."""
    view = segment.view
    written = (written_bytes(view, offset) + 7) & ~7
    # A mark ends in zeros, so that the last header may reach beyond the last byte that is not zero.
    end = min(len(view) & ~7, offset + written + HEADER_BYTES)
    highest = -1
    if end - offset >= HEADER_BYTES:
        # A header names its own position in its second word: comparing words finds the few places that are worth a checksum.
        words = view[offset:end].cast("Q")
        base = segment.position(offset)
        for index in range(len(words) - HEADER_BYTES // 8 + 1):
            if words[index + 1] == base + index:
                found = peek(view, offset + index * 8, base + index, salt)
                if found is not None and found[1] > highest:
                    highest = found[1]
    return highest


def is_ghost(synced: int, highest: int) -> bool:
    """What is durable never becomes less: a frame that knows less than the one before it was cut off once, and is older."""
    return synced < highest


def find_tail(segment: Segment, salt: int) -> tuple[int, int]:
    """(the tail, the position up to which marks vouch) of the last segment. Damaged where a place that was vouched for is broken.

    Up to the highest mark only headers are looked at: what they hold is checked when it is read. Beyond it every byte is.
    """
    view = segment.view
    vouched = position = segment.start
    offset = segment.offset(position)
    highest = 0
    while (header := peek(view, offset, position, salt)) is not None:
        size, synced, _ = header
        if is_ghost(synced, highest):
            break
        highest = synced
        vouched = max(vouched, synced)
        offset += size
        position += size >> 3
    tail = vouched
    try:
        while tail < position:
            tail += decode(view, segment.offset(tail), tail, salt)[0] >> 3
    except CodecError:
        pass
    return tail, vouched


def mend(disk: Disk, segment: Segment, size_bytes: int, salt: int) -> tuple[int, Recovered | None]:
    """Find the end of the last segment, cut what is torn, and make durable what is there: (tail, what was cut).

    Every step may be interrupted and done again: nothing before the cut is ever changed. The mark at the end draws a line: every frame
    written from now on knows more to be durable than any frame that was cut here, and by that the two can always be told apart.
    """
    tail, vouched = find_tail(segment, salt)
    offset = segment.offset(tail)
    torn_bytes = written_bytes(segment.view, offset)
    recovered = None
    if torn_bytes:
        if highest_synced(segment, offset, salt) > tail:
            where = f"{disk.describe(segment.name)}: damaged at offset {offset} (position {tail})"
            raise Damaged(f"{where}: it was durable, and what follows says so")
        recovered = Recovered(torn_bytes, tail, disk.describe(segment.name), offset)
        _log.warning("%s: a torn tail of %d bytes was cut at offset %d (position %d)", recovered.file, torn_bytes, offset, tail)
        scrub(segment, offset, torn_bytes)
    begin = segment.offset(vouched)
    if begin < offset:
        segment.file.write(bytes(segment.view[begin:offset]), begin)
    if segment.size_bytes < size_bytes:
        grow(segment, size_bytes)
    segment.file.sync_all()
    if offset + HEADER_BYTES <= segment.size_bytes:
        segment.file.write(encode((), tail, tail, salt)[0], offset)
        segment.file.sync()
        tail += HEADER_BYTES >> 3
    return tail, recovered


def scrub(segment: Segment, offset: int, torn_bytes: int) -> None:
    """Zeros over what is torn. In place: cutting the file and setting its space aside again could fail on a full disk."""
    for begin in range(offset, offset + torn_bytes, _BLOCK_BYTES):
        segment.file.write(_ZEROS[: offset + torn_bytes - begin], begin)


def grow(segment: Segment, size_bytes: int) -> None:
    """A segment that ends early (it comes from a backup) gets its room; on a full disk it is left as it is, and is full a little sooner."""
    segment.view = memoryview(b"")
    try:
        segment.file.allocate(size_bytes)
    except OSError as error:
        if not is_full(error):
            raise
    finally:
        segment.map()
