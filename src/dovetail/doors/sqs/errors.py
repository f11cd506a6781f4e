"""What the SQS door refuses, and how each protocol says so: one table with the JSON name, the query code, the HTTP status and the text.

Clients match on these codes and on some of the texts, so both are the ones that AWS uses. boto3 shows the query code.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail import errors


class Kind(NamedTuple):
    """A refusal by its two names."""

    name: str
    """The exception of the JSON protocol: `com.amazonaws.sqs#NAME`."""
    code: str
    """The code of the query protocol."""
    status: int
    text: str
    sender: bool = True
    """Whose fault it is: the caller's, or ours."""
    query_text: str = ""
    """The text of the query protocol, where AWS has another one there."""


def _own(name: str, text: str, status: int = 400) -> Kind:
    """One of SQS's own, whose code has its prefix."""
    return Kind(name, f"AWS.SimpleQueueService.{name}", status, text)


def _plain(name: str, text: str, status: int = 400, *, sender: bool = True) -> Kind:
    return Kind(name, name, status, text, sender)


QUEUE_DOES_NOT_EXIST = Kind(
    "QueueDoesNotExist",
    "AWS.SimpleQueueService.NonExistentQueue",
    400,
    "The specified queue does not exist.",
    query_text="The specified queue does not exist for this wsdl version.",
)
QUEUE_NAME_EXISTS = Kind(
    "QueueNameExists", "QueueAlreadyExists", 400, "A queue already exists with the same name and a different value for attribute."
)
QUEUE_DELETED_RECENTLY = _own(
    "QueueDeletedRecently", "You must wait 60 seconds after deleting a queue before you can create another with the same name."
)
BATCH_IDS_NOT_DISTINCT = _own("BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id.")
BATCH_TOO_LONG = _own("BatchRequestTooLong", "Batch requests cannot be longer than 1048576 bytes.")
BATCH_EMPTY = _own("EmptyBatchRequest", "There should be at least one entry in the request.")
BATCH_ID_INVALID = _own(
    "InvalidBatchEntryId",
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.",
)
BATCH_TOO_MANY = _own("TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10.")
MESSAGE_NOT_IN_FLIGHT = _own("MessageNotInflight", "The specified message isn't in flight.")
UNSUPPORTED = _own("UnsupportedOperation", "The operation is not supported.")
PURGE_IN_PROGRESS = _own("PurgeQueueInProgress", "Only one PurgeQueue operation on a queue is allowed every 60 seconds.", 403)
OVER_LIMIT = _plain("OverLimit", "Too many messages are in flight.", 403)
RESOURCE_NOT_FOUND = _plain("ResourceNotFoundException", "The resource that you specified for the SourceArn parameter doesn't exist.", 404)
ATTRIBUTE_NAME = _plain("InvalidAttributeName", "Unknown Attribute.")
ATTRIBUTE_VALUE = _plain("InvalidAttributeValue", "Invalid value for the parameter.")
MESSAGE_CONTENTS = _plain(
    "InvalidMessageContents",
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
)
RECEIPT_INVALID = _plain("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
ADDRESS = _plain("InvalidAddress", "The specified ID is invalid.")
THROTTLED = _plain("RequestThrottled", "The request was denied due to request throttling.")
PARAMETER_VALUE = Kind(
    "InvalidParameterValueException", "InvalidParameterValue", 400, "An invalid or out-of-range value was supplied for the input parameter."
)
PARAMETER_MISSING = Kind("MissingRequiredParameterException", "MissingParameter", 400, "A required parameter is missing.")
SERIALIZATION = Kind("SerializationException", "MalformedInput", 400, "The request could not be read.")
ACTION_UNKNOWN = Kind(
    "UnknownOperationException",
    "InvalidAction",
    400,
    "The action or operation requested is invalid. Verify that the action is typed correctly.",
)
ACTION_MISSING = Kind("UnknownOperationException", "MissingAction", 400, "The request is missing an action or a required parameter.")
ACCESS_DENIED = Kind("AccessDeniedException", "AccessDenied", 403, "Access to the resource is denied.")
INTERNAL = _plain(
    "InternalFailure", "The request failed because of an unknown error; whether it took effect is not known.", 500, sender=False
)
UNAVAILABLE = _plain("ServiceUnavailable", "The node cannot take this now; nothing was changed.", 503, sender=False)

KINDS: tuple[Kind, ...] = tuple(value for value in globals().values() if isinstance(value, Kind))
BY_CODE: dict[str, Kind] = {kind.code: kind for kind in KINDS}

_KMS = "KmsAccessDenied KmsDisabled KmsInvalidKeyUsage KmsInvalidState KmsNotFound KmsOptInRequired KmsThrottled"
REFUSED_OF_THE_MODEL: dict[str, str] = {
    **dict.fromkeys(
        _KMS.split(), "nothing is encrypted with KMS here: a key id is kept with the queue and shown, and no key service is asked"
    ),
    "InvalidIdFormat": "a handle that is none is ReceiptHandleIsInvalid, whatever is wrong with it",
    "InvalidSecurity": "a signature that is missing or wrong has codes of its own, and TLS is for the operator to ask for",
}
"""Errors of the service's model that this door never gives, each with the reason."""


class SqsError(Exception):
    """A call, or one entry of a batch, that is refused."""

    def __init__(self, kind: Kind, text: str | None = None) -> None:
        super().__init__(text or kind.text)
        self.kind = kind
        self.text = text or kind.text
        self.query_text = text or kind.query_text or kind.text


def invalid(parameter: str, value: object, reason: str) -> SqsError:
    """The text that AWS has for a value outside its rule."""
    return SqsError(PARAMETER_VALUE, f"Value {_shown(value)} for parameter {parameter} is invalid. Reason: {reason}")


def missing(parameter: str) -> SqsError:
    return SqsError(PARAMETER_MISSING, f"The request must contain the parameter {parameter}.")


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else text[:100] + "…"


_OURS: tuple[tuple[type[errors.DovetailError], Kind], ...] = (
    (errors.NoSuchQueue, QUEUE_DOES_NOT_EXIST),
    (errors.QueueExists, QUEUE_NAME_EXISTS),
    (errors.ReceiptInvalid, RECEIPT_INVALID),
    (errors.OverInFlight, OVER_LIMIT),
    (errors.Throttled, THROTTLED),
    (errors.OverQuota, OVER_LIMIT),
    (errors.StorageFull, UNAVAILABLE),
    (errors.Closed, UNAVAILABLE),
    (errors.Unavailable, UNAVAILABLE),
    (errors.Unknown, INTERNAL),
    (errors.StorageError, INTERNAL),
    (errors.LimitExceeded, PARAMETER_VALUE),
    (errors.BadRequest, PARAMETER_VALUE),
    (errors.Refused, PARAMETER_VALUE),
)
"""Errors of the rooms below in this door's words; the first that fits counts."""


def of(error: BaseException) -> SqsError:
    """Any error as this door says it."""
    if isinstance(error, SqsError):
        return error
    for kind_of_error, kind in _OURS:
        if isinstance(error, kind_of_error):
            keep = kind in (PARAMETER_VALUE, UNAVAILABLE, THROTTLED) or isinstance(error, errors.OverQuota)
            return SqsError(kind, str(error) if keep else None)
    return SqsError(INTERNAL)
