"""The audit log: who changed what, when, and with which outcome. One JSON object a line.

    {"time": "2026-01-31T08:00:00.123Z", "account": "000000000000", "key": "AKIA…", "action": "SetQueueAttributes", "queue": "orders",
     "request": "6f1c…", "outcome": "ok", "details": {"Attributes.VisibilityTimeout": "60"}}

What is written is chosen by a list of what may be shown (`SHOWN`), never by a list of what may not: a parameter that nobody thought of is
named and its value left out. So no secret and no body can get here, whatever a door hands over. Every value is bounded. An act is done
whether or not it could be written; a file that cannot be written is told to whoever counts (`failed`), and the line goes to the logger.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from dovetail.clock import Clock

VALUE_CHARACTERS_MAX = 256
DETAILS_MAX = 40

AUDITED = frozenset(
    "CreateQueue DeleteQueue PurgeQueue SetQueueAttributes AddPermission RemovePermission TagQueue UntagQueue StartMessageMoveTask "
    "CancelMessageMoveTask OpenFactsTap CloseFactsTap CreateAccount RemoveAccount AddKey EnableKey DisableKey RemoveKey SetQuota".split()
)
"""The acts that change what a queue or an account is, and who reads what happens to all queues. Sending and receiving are
not here: they are counted, not told."""

SHOWN = frozenset(
    "QueueName QueueNamePrefix Label AWSAccountIds Actions TagKeys SourceArn DestinationArn MaxNumberOfMessagesPerSecond "
    "Attributes.VisibilityTimeout Attributes.DelaySeconds Attributes.MaximumMessageSize Attributes.MessageRetentionPeriod "
    "Attributes.ReceiveMessageWaitTimeSeconds Attributes.Policy Attributes.RedrivePolicy Attributes.RedriveAllowPolicy "
    "Attributes.KmsMasterKeyId Attributes.KmsDataKeyReusePeriodSeconds Attributes.SqsManagedSseEnabled Attributes.FifoQueue "
    "Attributes.ContentBasedDeduplication Attributes.DeduplicationScope Attributes.FifoThroughputLimit "
    "account name key_id expires_at messages_max bytes_max requests_per_s queues_max".split()
)
"""Parameters whose values are written. The values of tags are their owner's and are not; the keys of tags are."""

NAMES_ONLY = frozenset({"Tags", "tags"})

_logger = logging.getLogger("dovetail.audit")

Write = Callable[[str], None]


class AuditFile:
    """Lines at the end of a file that only its owner reads. The file may be moved away while the node runs: the next line begins a new
    one. Lines are handed to the system and not synced: an audit log is no commit log, and an act must not wait for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._identity = (0, 0)
        self._torn = False
        self._open()

    def __call__(self, line: str) -> None:
        try:
            found = os.stat(self._path)
            moved = (found.st_dev, found.st_ino) != self._identity
        except FileNotFoundError:
            moved = True
        if moved:
            self.close()
            self._open()
        # One write of one line: lines of two processes in one file do not mix. Half a line is ended before the next begins.
        data = (b"\n" if self._torn else b"") + line.encode() + b"\n"
        self._torn = os.write(self._file, data) < len(data)
        if self._torn:
            raise OSError(errno.ENOSPC, "only a part of the line could be written")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        found = os.fstat(self._file)
        self._identity = (found.st_dev, found.st_ino)


class Audit:
    """Give it `AuditFile(path)` to write to a file; without, lines go to the logger `dovetail.audit`."""

    def __init__(self, clock: Clock, write: Write = _logger.info, failed: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._write = write
        self._failed = failed

    def act(
        self,
        action: str,
        *,
        account: str,
        key_id: str = "",
        queue: str = "",
        request_id: str = "",
        outcome: str = "ok",
        parameters: Mapping[str, object] | None = None,
    ) -> None:
        """Write it down, if it is an act to be written down. `parameters` may be the whole request as the door understood it; `outcome` is
        `ok` or the word of the error. Refused acts are written too: somebody tried."""
        if action not in AUDITED:
            return
        line: dict[str, object] = {
            "time": _instant(self._clock.wall_ms()),
            "account": _bounded(account),
            "key": _bounded(key_id),
            "action": action,
            "queue": _bounded(queue),
            "request": _bounded(request_id),
            "outcome": _bounded(outcome),
        }
        if parameters:
            line["details"] = details_of(parameters)
        # Everything beyond ASCII is escaped, line ends of any alphabet included: one act is one line.
        text = json.dumps(line)
        try:
            self._write(text)
        except OSError as error:
            self._failed()
            _logger.error("the audit file cannot be written (%s); the act was: %s", error, text)


def details_of(parameters: Mapping[str, object]) -> dict[str, str]:
    """What may be shown of a request, flat. A value that may not is an empty text under its name; what is too much is counted."""
    shown: dict[str, str] = {}
    left_out = 0
    for name, value in _flat(parameters):
        if len(shown) == DETAILS_MAX:
            left_out += 1
        else:
            shown[_bounded(name)] = _bounded(value) if name in SHOWN else ""
    if left_out:
        shown["…"] = f"{left_out} more"
    return shown


def _flat(parameters: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in parameters.items():
        if name in NAMES_ONLY and isinstance(value, Mapping):
            for key in value:
                yield f"{name}.{key}", ""
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                yield f"{name}.{key}", inner
        elif name not in ("QueueUrl", "TaskHandle"):
            # The queue has a place of its own, and the handle of a task is a key to it.
            yield name, value


def _bounded(value: object) -> str:
    if isinstance(value, list | tuple):
        value = ",".join(str(one)[:VALUE_CHARACTERS_MAX] for one in value[:DETAILS_MAX])
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 1] + "…"


def _instant(wall_ms: int) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(wall_ms // 1000))}.{wall_ms % 1000:03}Z"
