"""A segment: one file of the log, and the header that says which stretch it holds. It knows places, not what is in the frames.

     0               8              12              16                              32
    +---------------+---------------+---------------+-------------------------------+
    | "DOVETAIL"    | version (u32) | zero (u32)    | log id (16 random bytes)      |
    +---------------+---------------+---------------+-------------------------------+
    | start (u64)   | previous (u64)| crc32c (u32)  | zeros up to 512 bytes ...     |
    +---------------+---------------+---------------+-------------------------------+

Frames follow from byte 512 on, so that no append ever rewrites the sector of the header. `start` is the position of the first frame
and is also the file's name; `previous` is the start of the segment before (its own start in the very first), which makes a missing
file visible without reading any frame. The header is synced before the file gets its name: a file that is called a segment has one.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from ...errors import Damaged, FormatUnknown
from .disk import Disk, File

FORMAT_VERSION = 1
SEGMENT_HEADER_BYTES = 512
FOLDER = "log"
_MAGIC = b"DOVETAIL"
_HEADER = Struct("<8sII16sQQ")
_CRC = Struct("<I")


def segment_name(start: int) -> str:
    return f"{FOLDER}/{start:016x}.seg"


def segment_names(disk: Disk) -> list[str]:
    """In the order of the log."""
    return [f"{FOLDER}/{name}" for name in disk.names(FOLDER) if name.endswith(".seg")]


def encode_header(log_id: bytes, start: int, previous: int) -> bytes:
    head = _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, log_id, start, previous)
    return (head + _CRC.pack(crc32c(head))).ljust(SEGMENT_HEADER_BYTES, b"\0")


class Segment:
    """An open segment. `view` is the whole file; `offset` turns a position into a place in it."""

    __slots__ = ("file", "log_id", "name", "previous", "size_bytes", "start", "view")

    def __init__(self, name: str, file: File, log_id: bytes, start: int, previous: int) -> None:
        self.name = name
        self.file = file
        self.log_id = log_id
        self.start = start
        self.previous = previous
        self.size_bytes = 0
        self.view = memoryview(b"")
        self.map()

    def map(self) -> None:
        """Look at the file again after its size has changed."""
        self.view = self.file.view()
        self.size_bytes = len(self.view)

    def offset(self, position: int) -> int:
        return SEGMENT_HEADER_BYTES + ((position - self.start) << 3)

    def position(self, offset: int) -> int:
        return self.start + ((offset - SEGMENT_HEADER_BYTES) >> 3)

    def close(self) -> None:
        """The view stays good: a backup may still be reading what trim removes."""
        self.file.close()


def make_segment(disk: Disk, from_name: str, file: File, log_id: bytes, start: int, previous: int) -> Segment:
    """Turn a prepared file of zeros into the segment that begins at `start`. Durable when it returns."""
    file.write(encode_header(log_id, start, previous), 0)
    file.sync()
    name = segment_name(start)
    disk.rename(from_name, name)
    disk.sync_folder(FOLDER)
    return Segment(name, file, log_id, start, previous)


def open_segment(disk: Disk, name: str, *, write: bool = True) -> Segment:
    """Damaged or FormatUnknown, naming the file, where the header is not what it must be."""
    file = disk.open(name, write=write)
    try:
        where = disk.describe(name)
        head = bytes(file.view()[:SEGMENT_HEADER_BYTES])
        if len(head) < SEGMENT_HEADER_BYTES:
            raise Damaged(f"{where}: the file ends inside its header, at offset {len(head)}")
        magic, version, _, log_id, start, previous = _HEADER.unpack_from(head)
        if magic == _MAGIC and version > FORMAT_VERSION:
            raise FormatUnknown(f"{where}: format {version} is newer than this version of Dovetail can read ({FORMAT_VERSION})")
        if head != encode_header(log_id, start, previous):
            raise Damaged(f"{where}: the segment's header at offset 0 does not match its checksum")
        if name != segment_name(start):
            raise Damaged(f"{where}: the file says that it begins at {start:016x}, which is not its name")
        return Segment(name, file, log_id, start, previous)
    except BaseException:
        file.close()
        raise
