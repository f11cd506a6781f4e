"""The law of a log under faults, and its judge. It knows what was sent and answered; it does not know how the log keeps it.

    acked               present, exactly once, in order, unaltered; also after any number of further crashes
    refused             absent, for ever
    neither             absent or whole; whichever it was at the first look, it stays
    a blob              the content of the last put that returned; during a put, the old or the new one, whole
    damage to what was  found and named (Damaged, FormatUnknown); never a shorter log, never other bytes
    durable

A `Ledger` outlives the process that dies: it is the notebook of somebody outside. `perform` plays a script against a log and writes
it down; `judge` opens its eyes after a crash.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..errors import StorageError, StorageFull
from ..logs.local import CommitLog
from ..logs.log import Entry

Step = tuple[str, *tuple[int, ...]]
"""("append", sizes…) · ("ride", sizes…): the next one's sync serves it · ("vital", sizes…) · ("blob", name, size) · ("remove", name) ·
("trim", entries kept) · ("mark",). A negative size is a record of zeros."""


class LawBroken(AssertionError):
    """The log broke its law."""


@dataclass
class _Sent:
    records: list[bytes]
    state: Literal["open", "acked", "refused", "dead"] = "open"
    position: int | None = None


@dataclass
class Ledger:
    """What was sent, and what was answered."""

    sent: list[_Sent] = field(default_factory=list)
    trimmed: int = 0
    blobs: dict[str, set[bytes | None]] = field(default_factory=dict)
    vital_refused: int = 0

    def entry(self, sizes: Sequence[int]) -> tuple[int, list[bytes]]:
        number = len(self.sent)
        chance = random.Random(number)
        records = [number.to_bytes(8, "little"), *(chance.randbytes(size) if size >= 0 else bytes(-size) for size in sizes)]
        self.sent.append(_Sent(records))
        return number, records

    def on_deliver(self, entry: Entry) -> None:
        number = int.from_bytes(entry.records[0], "little")
        sent = self.sent[number]
        if sent.state != "open":
            raise LawBroken(f"entry {number} was delivered although it is {sent.state}")
        if any(later.state == "acked" for later in self.sent[number + 1 :]):
            raise LawBroken(f"entry {number} was delivered after a later one")
        sent.state, sent.position = "acked", entry.position

    def judge(self, log: CommitLog) -> int:
        """Look at everything the log holds; returns how many entries it has. Raises LawBroken, or what the log raises."""
        found: set[int] = set()
        last = -1
        for entry in list(log.read(log.first)):
            number = int.from_bytes(entry.records[0], "little")
            if number >= len(self.sent):
                raise LawBroken(f"entry {number} at position {entry.position} was never sent")
            sent = self.sent[number]
            if sent.state in ("refused", "dead"):
                raise LawBroken(f"entry {number} was {sent.state} and is there")
            if number <= last:
                raise LawBroken(f"entry {number} comes twice or out of order")
            if [bytes(record) for record in entry.records] != sent.records:
                raise LawBroken(f"entry {number} is not what was sent")
            if sent.position is not None and sent.position != entry.position:
                raise LawBroken(f"entry {number} moved from {sent.position} to {entry.position}")
            for address, record in zip(entry.addresses, sent.records, strict=True):
                if bytes(log.fetch(address) or b"") != record:
                    raise LawBroken(f"record {address} of entry {number} cannot be fetched")
            sent.position = entry.position
            found.add(number)
            last = number
        if log.first > self.trimmed:
            raise LawBroken(f"the log begins at {log.first}, but only what is before {self.trimmed} was given up")
        for number, sent in enumerate(self.sent):
            if number in found:
                sent.state = "acked"
            elif sent.state == "acked" and (sent.position or 0) >= log.first:
                raise LawBroken(f"entry {number} was acknowledged at {sent.position} and is lost")
            elif sent.state == "open":
                sent.state = "dead"
        self._judge_blobs(log)
        return len(found)

    def _judge_blobs(self, log: CommitLog) -> None:
        names = set(log.blobs.names())
        for name in names - self.blobs.keys():
            raise LawBroken(f"blob {name} was never put")
        for name, allowed in self.blobs.items():
            content = bytes(log.blobs.get(name)) if name in names else None
            if content not in allowed:
                raise LawBroken(f"blob {name} is neither the old nor the new one")
            self.blobs[name] = {content}


def perform(log: CommitLog, ledger: Ledger, script: Iterable[Step]) -> None:
    """Play the script on a started log until it ends or the log has stopped."""
    stopped: list[BaseException] = []
    log.start(ledger.on_deliver, stopped.append)
    for step in script:
        if stopped:
            return
        try:
            _perform(log, ledger, step)
        except (StorageFull, StorageError):
            continue  # The ledger knows; the script goes on as a user would.


def _perform(log: CommitLog, ledger: Ledger, step: Step) -> None:
    kind, *numbers = step
    if kind in ("append", "ride", "vital"):
        number, records = ledger.entry(numbers)
        try:
            log.append(records, vital=kind == "vital", more=kind == "ride")
        except StorageFull:
            ledger.sent[number].state = "refused"
            ledger.vital_refused += kind == "vital"
            raise
    elif kind == "blob":
        name = f"blob-{numbers[0]}"
        before = ledger.blobs.get(name, {None})
        content = random.Random(numbers[1]).randbytes(numbers[1])
        ledger.blobs[name] = {*before, content}
        log.blobs.put(name, iter([content[:700], memoryview(content)[700:]]))
        ledger.blobs[name] = {content}
    elif kind == "remove":
        name = f"blob-{numbers[0]}"
        ledger.blobs[name] = {*ledger.blobs.get(name, {None}), None}
        log.blobs.remove(name)
        ledger.blobs[name] = {None}
    elif kind == "trim":
        kept = [sent.position for sent in ledger.sent if sent.state == "acked"][-numbers[0] :]
        ledger.trimmed = max(ledger.trimmed, kept[0] or 0) if kept else ledger.trimmed
        log.trim(ledger.trimmed)
    elif kind == "mark":
        log.mark()
    else:
        raise ValueError(f"no such step: {kind}")
