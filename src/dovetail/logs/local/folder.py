"""The data folder: which format it has and whose log it holds. One small text file, written last when a folder is made.

`FORMAT` is there only once the first segment is: a folder with FORMAT and no segment has lost its log and is refused, a folder with
neither is new, and one with an empty first segment and no FORMAT is one whose making was interrupted and begins again.
"""

from __future__ import annotations

import os

from crc32c import crc32c

from ...errors import FormatUnknown
from .blobs import FOLDER as BLOBS_FOLDER
from .disk import Disk
from .segment import FOLDER, FORMAT_VERSION, SEGMENT_HEADER_BYTES, make_segment, segment_names
from .space import Space

FORMAT_FILE = "FORMAT"
_TITLE = "dovetail data folder"


def _line(version: int, log_id: bytes) -> str:
    return f"{_TITLE}\nformat {version}\nlog {log_id.hex()}\n"


def write_format(disk: Disk, log_id: bytes) -> None:
    """Durable when it returns, and never half there."""
    text = _line(FORMAT_VERSION, log_id)
    file = disk.create(FORMAT_FILE + ".tmp")
    try:
        file.write(f"{text}check {crc32c(text.encode()):08x}\n".encode(), 0)
        file.sync_all()
    finally:
        file.close()
    disk.rename(FORMAT_FILE + ".tmp", FORMAT_FILE)
    disk.sync_folder("")


def read_format(disk: Disk) -> bytes | None:
    """The log's id; None where there is no FORMAT file."""
    try:
        file = disk.open(FORMAT_FILE, write=False)
    except FileNotFoundError:
        return None
    try:
        text = bytes(file.view()[:4096]).decode("ascii", "replace")
    finally:
        file.close()
    where = disk.describe(FORMAT_FILE)
    lines = text.split("\n")
    if lines[0] != _TITLE or len(lines) < 4:
        raise FormatUnknown(f"{where}: this is not a data folder of Dovetail")
    version = lines[1].removeprefix("format ")
    if version.isdecimal() and int(version) > FORMAT_VERSION:
        raise FormatUnknown(f"{where}: format {version} is newer than this version of Dovetail can read ({FORMAT_VERSION})")
    try:
        log_id = bytes.fromhex(lines[2].removeprefix("log "))
    except ValueError:
        log_id = b""
    body = _line(FORMAT_VERSION, log_id)
    if text != f"{body}check {crc32c(body.encode()):08x}\n":
        raise FormatUnknown(f"{where}: the file was altered or is damaged")
    return log_id


def make_folder(disk: Disk, space: Space) -> bytes:
    """A new folder, or one whose making was interrupted; the id of its log."""
    for folder in (FOLDER, BLOBS_FOLDER):
        disk.make_folder(folder)
    disk.sync_folder("")
    names = segment_names(disk)
    if names:
        _refuse_unless_empty(disk, names)
        disk.unlink(names[0])
        disk.sync_folder(FOLDER)
    log_id = os.urandom(16)
    name, file = space.take(vital=False)
    make_segment(disk, name, file, log_id, 0, 0).close()
    write_format(disk, log_id)
    return log_id


def _refuse_unless_empty(disk: Disk, names: list[str]) -> None:
    complaint = FormatUnknown(f"{disk.describe(FORMAT_FILE)}: the file is missing, but there are segments")
    if len(names) > 1:
        raise complaint
    file = disk.open(names[0], write=False)
    try:
        if bytes(file.view()[SEGMENT_HEADER_BYTES:]).strip(b"\0"):
            raise complaint
    finally:
        file.close()
