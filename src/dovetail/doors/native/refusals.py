"""Every error that the native door answers, by its number, and back: a node turns what was raised into a number and a text, a client turns
the number into the same class again. A number is never given to another meaning.
"""

from __future__ import annotations

from enum import IntEnum

from dovetail import errors
from dovetail.doors.native.answers import Error
from dovetail.doors.native.fields import Malformed, NoSuchKind
from dovetail.errors import BadRequest, CodecError, DovetailError, TapCut, Throttled, Unknown


class ProtocolError(CodecError):
    """What was said is not this protocol."""


class AccessDenied(BadRequest):
    """The key or its proof is not valid, or the caller may not do this."""


class NotYet(BadRequest):
    """The request is numbered and not there yet."""


class NotOpened(BadRequest):
    """The queue, or the producer, was not opened on this connection."""


class NoArrow(BadRequest):
    """The node has no pyarrow: reads of taps are answered in plain columns only."""


class Code(IntEnum):
    """1 to 63: a class each of errors.py. 64 and above: the protocol's own."""

    ERROR = 1
    REFUSED = 2
    BAD_REQUEST = 3
    LIMIT_EXCEEDED = 4
    NO_SUCH_QUEUE = 5
    QUEUE_EXISTS = 6
    NO_SUCH_TAP = 7
    TAP_CUT = 8
    RECEIPT_INVALID = 9
    NUMBER_REFUSED = 10
    UNAVAILABLE = 11
    STORAGE_FULL = 12
    OVER_IN_FLIGHT = 13
    OVER_QUOTA = 14
    THROTTLED = 15
    CLOSED = 16
    UNKNOWN = 17
    STORAGE_ERROR = 18
    DAMAGED = 19
    FOLDER_LOCKED = 20
    FORMAT_UNKNOWN = 21
    CODEC_ERROR = 22
    NO_SUCH_STAGE = 23
    NO_SUCH_RESERVATION = 24
    FENCED = 25
    BATCH_REFUSED = 26

    PROTOCOL = 64
    MALFORMED = 65
    NO_SUCH_KIND = 66
    ACCESS_DENIED = 67
    NOT_YET = 68
    NOT_OPENED = 69
    NO_ARROW = 70


CLASSES: dict[Code, type[DovetailError]] = {
    Code.ERROR: DovetailError,
    Code.REFUSED: errors.Refused,
    Code.BAD_REQUEST: BadRequest,
    Code.LIMIT_EXCEEDED: errors.LimitExceeded,
    Code.NO_SUCH_QUEUE: errors.NoSuchQueue,
    Code.QUEUE_EXISTS: errors.QueueExists,
    Code.NO_SUCH_TAP: errors.NoSuchTap,
    Code.TAP_CUT: TapCut,
    Code.RECEIPT_INVALID: errors.ReceiptInvalid,
    Code.NUMBER_REFUSED: errors.NumberRefused,
    Code.UNAVAILABLE: errors.Unavailable,
    Code.STORAGE_FULL: errors.StorageFull,
    Code.OVER_IN_FLIGHT: errors.OverInFlight,
    Code.OVER_QUOTA: errors.OverQuota,
    Code.THROTTLED: Throttled,
    Code.CLOSED: errors.Closed,
    Code.UNKNOWN: Unknown,
    Code.STORAGE_ERROR: errors.StorageError,
    Code.DAMAGED: errors.Damaged,
    Code.FOLDER_LOCKED: errors.FolderLocked,
    Code.FORMAT_UNKNOWN: errors.FormatUnknown,
    Code.CODEC_ERROR: CodecError,
    Code.NO_SUCH_STAGE: errors.NoSuchStage,
    Code.NO_SUCH_RESERVATION: errors.NoSuchReservation,
    Code.FENCED: errors.Fenced,
    Code.BATCH_REFUSED: errors.BatchRefused,
    Code.PROTOCOL: ProtocolError,
    Code.MALFORMED: Malformed,
    Code.NO_SUCH_KIND: NoSuchKind,
    Code.ACCESS_DENIED: AccessDenied,
    Code.NOT_YET: NotYet,
    Code.NOT_OPENED: NotOpened,
    Code.NO_ARROW: NoArrow,
}
_CODES = {made: code for code, made in CLASSES.items()}
TEXT_CHARS_MAX = 1_000


def answer(error: BaseException) -> Error:
    """What a client is told of an error. A fault that is none of ours by name tells nothing of the inside, and says so: unknown."""
    code = next((_CODES[made] for made in type(error).__mro__ if made in _CODES), None)
    if code is None:
        return Error(Code.UNKNOWN, "The node failed; whether it happened is not known, and the node's log has why.", True)
    first, second = 0, 0
    if isinstance(error, TapCut):
        first, second = error.lost_first, error.lost_count
    elif isinstance(error, Throttled):
        first = error.retry_after_ms
    return Error(code, str(error)[:TEXT_CHARS_MAX], not isinstance(error, errors.Refused | CodecError), first, second)


def code_of(error: BaseException) -> str:
    """The word for it, as it is counted."""
    return Code(answer(error).code).name


def raised(told: Error) -> DovetailError:
    """The error that an answer stands for."""
    if told.code == Code.TAP_CUT:
        return TapCut(told.text, lost_first=told.first, lost_count=told.second)
    if told.code == Code.THROTTLED:
        return Throttled(told.text, retry_after_ms=told.first)
    try:
        made = CLASSES[Code(told.code)]
    except ValueError:
        # A later node's number. What a client must know is whether it may have happened.
        made = Unknown if told.unknown else errors.Refused
    return made(told.text)
