"""Reading: entries and single records out of a segment, checked, without a copy. It knows places; the log knows which may be read.

The bytes are the file's own, mapped: a sector that the device cannot read any more ends the process (SIGBUS) instead of giving
other bytes. `pread` would turn that into an error, at the price of a system call and a copy for every fetch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import CodecError, Damaged
from ..frame import decode, record_at
from ..log import Entry
from .disk import Disk
from .segment import SEGMENT_HEADER_BYTES, Segment


def _damaged(disk: Disk, segment: Segment, offset: int, what: str) -> Damaged:
    return Damaged(f"{disk.describe(segment.name)}: damaged at offset {offset} ({what})")


def read_segment(disk: Disk, segment: Segment, position: int, end: int, salt: int) -> Iterator[Entry]:
    """The entries from `position` to exactly `end`; marks are passed over."""
    view = segment.view
    offset = segment.offset(position)
    while position < end:
        try:
            size, _, records, addresses = decode(view, offset, position, salt)
        except CodecError as error:
            raise _damaged(disk, segment, offset, f"position {position}: {error}") from None
        offset += size
        after = position + (size >> 3)
        if records:
            yield Entry(position, after, records, addresses)
        position = after
    if position != end:
        raise _damaged(disk, segment, offset, f"position {position}: the last frame reaches beyond {end}")


def read_record(disk: Disk, segment: Segment, address: int) -> memoryview:
    offset = SEGMENT_HEADER_BYTES + ((address - segment.start) << 3)
    try:
        return record_at(segment.view, offset)
    except CodecError as error:
        raise _damaged(disk, segment, offset, f"address {address}: {error}") from None
