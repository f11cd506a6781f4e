"""Every error that Dovetail raises on purpose, drawn as a tree. The docstring is the message.

    DovetailError
    ├── Refused                 nothing happened; the caller may change the request or try again
    │   ├── BadRequest          the caller's fault: the request breaks a rule
    │   │   ├── LimitExceeded
    │   │   ├── NoSuchQueue
    │   │   ├── QueueExists
    │   │   ├── NoSuchTap
    │   │   ├── TapCut
    │   │   ├── ReceiptInvalid
    │   │   ├── NumberRefused
    │   │   ├── NoSuchStage
    │   │   ├── NoSuchReservation
    │   │   ├── Fenced          a later owner has taken over, or an operator has released it
    │   │   └── BatchRefused
    │   └── Unavailable         the node's or the world's fault: try again later
    │       ├── StorageFull
    │       ├── OverInFlight
    │       ├── OverQuota       an account or a queue has as much as it may have
    │       │   └── Throttled
    │       └── Closed
    ├── Unknown                 it may or may not have happened (the node stopped before the answer)
    ├── StorageError            the log cannot go on: the node stops
    │   ├── Damaged             bytes that were once durable do not match their checksum
    │   ├── FolderLocked        another process has the data folder
    │   ├── Moved               its messages were moved to another store, or are being moved here
    │   └── FormatUnknown       written by a newer version, or not by Dovetail
    └── CodecError              bytes that are not what they claim to be

Each error knows whose fault it is (`fault`: "caller", "node" or "unknown"); every door owns one table that turns these
classes into its protocol's words.
"""

from __future__ import annotations


class DovetailError(Exception):
    """Something went wrong in Dovetail."""

    fault = "node"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class Refused(DovetailError):
    """The request was refused and nothing happened."""


class BadRequest(Refused):
    """The request breaks a rule."""

    fault = "caller"


class LimitExceeded(BadRequest):
    """A value is larger than its limit."""


class NoSuchQueue(BadRequest):
    """There is no queue of that name."""


class QueueExists(BadRequest):
    """A queue of that name exists with other attributes."""


class NoSuchTap(BadRequest):
    """The queue has no tap of that name."""


class TapCut(BadRequest):
    """The tap fell behind its bound and was cut; messages are missing."""

    def __init__(self, message: str | None = None, *, lost_first: int = 0, lost_count: int = 0) -> None:
        super().__init__(message)
        self.lost_first = lost_first
        self.lost_count = lost_count


class ReceiptInvalid(BadRequest):
    """The receipt was not made by this namespace or was altered."""


class NumberRefused(BadRequest):
    """The producer is not open, or its number leaves a gap."""


class NoSuchStage(BadRequest):
    """There is no such stage: it was published, given up, or never begun."""


class NoSuchReservation(BadRequest):
    """The queue has no reservation of that name."""


class Fenced(BadRequest):
    """The epoch has ended: the reservation was opened again, or released."""


class BatchRefused(BadRequest):
    """The batch cannot be had, or settled, any more."""


class Unavailable(Refused):
    """The node cannot do this now; try again later."""


class StorageFull(Unavailable):
    """The disk is full: pushes are refused until space returns; receives and completes go on."""


class OverInFlight(Unavailable):
    """The queue has as many messages in flight as it may have."""


class OverQuota(Unavailable):
    """A quota is reached."""

    fault = "caller"

    def __init__(self, message: str | None = None, *, quota: str = "") -> None:
        super().__init__(message)
        self.quota = quota


class Throttled(OverQuota):
    """More requests came in a second than the quota allows; slow down and try again."""

    def __init__(self, message: str | None = None, *, quota: str = "", retry_after_ms: int = 0) -> None:
        super().__init__(message, quota=quota)
        self.retry_after_ms = retry_after_ms


class Closed(Unavailable):
    """The node is closed."""


class Unknown(DovetailError):
    """The outcome is not known: the node stopped before it could answer."""

    fault = "unknown"


class StorageError(DovetailError):
    """The log cannot go on."""


class Damaged(StorageError):
    """Bytes that were durable no longer match their checksum."""


class FolderLocked(StorageError):
    """Another process has this data folder open."""


class Moved(StorageError):
    """The messages of this log were moved to another store."""


class FormatUnknown(StorageError):
    """The file was written by a newer version of Dovetail, or not by Dovetail at all."""


class CodecError(DovetailError):
    """The bytes are not a valid record."""

    fault = "caller"
