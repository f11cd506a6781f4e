"""Entries of a migration: what `dovetail migrate` writes into the log that it fills, and, last of all, into the one that it has emptied.

Their head names a writer that no node ever is, MOVER, and their last record is a *note*; between them lie records of another log, as they
were. A log in which a node meets one (behind the snapshot that it begins with) is not one to serve from:

| note | where | means |
| --- | --- | --- |
| COPY | the target | the migration is not finished: its snapshot would stand behind all copies |
| END | the source | everything before it is at `place` now; nothing behind it counts, whoever wrote it |

Because both lie in the log itself, in the one order that all nodes see, no node can serve beside a migration by having looked too early.

    COPY   | kind u8 | identity 16 | addresses u64 × records: where each lay in the source |
    END    | kind u8 | identity 16 | place, UTF-8                                         |
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from dovetail.core.operation import Head
from dovetail.errors import CodecError, Moved

MOVER = b"dovetail-migrate"
COPY, END = 250, 251
"""No kinds of operations: a node of an older version, which knows no notes, finds damage here and stops, and serves nothing behind it."""
_IDENTITY_BYTES = 16

assert len(MOVER) == 16


class Note(NamedTuple):
    kind: int
    identity: bytes
    """Of the source."""
    addresses: Sequence[int] = ()
    place: str = ""

    def encode(self) -> bytes:
        return bytes((self.kind,)) + self.identity + (array("Q", self.addresses).tobytes() if self.kind == COPY else self.place.encode())


def identity_of(key: bytes) -> bytes:
    """Of the log that has this sealing key: there are no two, but copies of one."""
    return blake2b(key, digest_size=_IDENTITY_BYTES, person=b"migrate").digest()


def note_of(head: Head, records: Sequence[bytes | memoryview]) -> Note | None:
    """None where the entry is no migration's."""
    if head.writer != MOVER:
        return None
    data = bytes(records[-1])
    kind, identity, rest = data[0], data[1 : 1 + _IDENTITY_BYTES], data[1 + _IDENTITY_BYTES :]
    if kind == END:
        return Note(END, identity, place=rest.decode())
    addresses = array("Q")
    if kind != COPY or len(rest) != 8 * (len(records) - 2):
        raise CodecError("an entry of a migration that this version does not know")
    addresses.frombytes(rest)
    return Note(COPY, identity, addresses)


def passed(head: Head, records: Sequence[bytes | memoryview], key: bytes) -> bool:
    """For every entry that a store with this sealing key replays. True: it is a copy that came a second time, behind the snapshot of its
    own migration (engines may double what is published), and holds no operations. Raises Moved where the log is not to be served from."""
    note = note_of(head, records) if head.writer == MOVER else None
    if note is None:
        return False
    if note.kind == COPY and key and note.identity == identity_of(key):
        return True
    if note.kind == END:
        raise Moved(f"The messages of this log were moved to {note.place} by `dovetail migrate`: start nodes there.")
    raise Moved("A migration into this log is not finished: run the same `dovetail migrate` again, and start nodes when it is done.")
