"""The 21 attributes of a queue: what each may be, what it is without being set, and which rule of the core it becomes. Pure.

Rules of the core (a lease, a delay, groups …) are kept as such; everything else lies in `Attributes.extra` under its own name, as given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dovetail.core.operation import Attributes
from dovetail.doors.sqs import errors
from dovetail.doors.sqs.errors import SqsError

IN_FLIGHT_MAX = 120_000
DEDUPLICATION_MS = 300_000
RETENTION_S = 345_600
RECEIVES_MAX = 1000
SOURCES_MAX = 10
DOCUMENT_CHARS_MAX = 8192
"""Of each attribute that is a text: that of a policy, the longest of them (policy.py counts its bytes). Every queue's stay in memory."""
DOCUMENT_CHARS_SHOWN = 500


class Number(NamedTuple):
    """A whole number between two limits."""

    least: int
    most: int
    default: int
    rule: str = ""
    """The field of the core's `Attributes` that it becomes, in milliseconds; empty where only this door knows it."""


NUMBERS: dict[str, Number] = {
    "VisibilityTimeout": Number(0, 43_200, 30, "lease_ms"),
    "DelaySeconds": Number(0, 900, 0, "delay_ms"),
    "MaximumMessageSize": Number(1024, 1_048_576, 1_048_576),
    "MessageRetentionPeriod": Number(60, 1_209_600, RETENTION_S, "retention_ms"),
    "ReceiveMessageWaitTimeSeconds": Number(0, 20, 0),
    "KmsDataKeyReusePeriodSeconds": Number(60, 86_400, 300),
}
CHOICES: dict[str, tuple[str, ...]] = {
    "SqsManagedSseEnabled": ("true", "false"),
    "FifoQueue": ("true",),
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
TEXTS = ("Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId")
"""An empty text removes the attribute."""
READ_ONLY = (
    "QueueArn",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
FIFO_ONLY = ("FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")
ALL = (*NUMBERS, *CHOICES, *TEXTS, *READ_ONLY)
BEYOND = {"VisibilityTimeout": 1 << 30, "DelaySeconds": 1 << 30, "MessageRetentionPeriod": 1 << 30}
"""With `--sqs-beyond on`: what SQS limits for reasons of its own."""

CREATED, MODIFIED, TAGS = "CreatedTimestamp", "LastModifiedTimestamp", "Tags"
"""Kept in `extra` beside the attributes."""

_ARN = re.compile(r"arn:aws[a-z-]*:sqs:([a-z0-9-]+):([0-9]{12}):([A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo)")


class Arn(NamedTuple):
    region: str
    account: str
    name: str

    def __str__(self) -> str:
        return f"arn:aws:sqs:{self.region}:{self.account}:{self.name}"


def arn_of(text: str) -> Arn | None:
    match = _ARN.fullmatch(text)
    return Arn(match[1], match[2], match[3]) if match is not None else None


def checked(given: Mapping[str, str], *, fifo: bool, creating: bool, beyond: bool) -> dict[str, str]:
    """Attributes as a caller gave them, each held to its rule and numbers in one form; names that the queue cannot have are refused."""
    made: dict[str, str] = {}
    for name, value in given.items():
        if name not in ALL or name in READ_ONLY or (name in FIFO_ONLY and not fifo):
            raise SqsError(errors.ATTRIBUTE_NAME, f"Unknown Attribute {name[:100]}.")
        if name in CHOICES and value not in CHOICES[name]:
            raise _bad(name, "" if creating or name != "FifoQueue" else " Reason: Modifying queue type is not supported.")
        if name in TEXTS and name != "Policy" and len(value) > DOCUMENT_CHARS_MAX:
            raise _bad(name, f" Reason: it is longer than {DOCUMENT_CHARS_MAX} characters.")
        made[name] = _number(name, value, beyond) if name in NUMBERS else value
    return made


def _number(name: str, value: str, beyond: bool) -> str:
    rule = NUMBERS[name]
    most = BEYOND.get(name, rule.most) if beyond else rule.most
    if not value.isascii() or not value.isdigit() or len(value) > 12 or not rule.least <= int(value) <= most:
        raise _bad(name)
    # A queue that was made with 030 is the one that is made with 30.
    return str(int(value))


def _bad(name: str, reason: str = "") -> SqsError:
    return SqsError(errors.ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}.{reason}")


class RedrivePolicy(NamedTuple):
    target: Arn
    receives_max: int


def redrive_policy(text: str) -> RedrivePolicy:
    value = _object("RedrivePolicy", text)
    count, target = value.get("maxReceiveCount", 10), value.get("deadLetterTargetArn")
    if isinstance(count, str) and count.isascii() and count.isdigit() and len(count) < 6:
        count = int(count)
    if not value.keys() <= {"maxReceiveCount", "deadLetterTargetArn"} or not isinstance(target, str):
        raise refused("RedrivePolicy", text, "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
    if type(count) is not int or not 1 <= count <= RECEIVES_MAX:
        raise refused(
            "RedrivePolicy",
            text,
            f"Invalid value for maxReceiveCount: {str(count)[:40]}, valid values are from 1 to {RECEIVES_MAX} both inclusive.",
        )
    arn = arn_of(target)
    if arn is None:
        raise refused("RedrivePolicy", text, "Invalid value for deadLetterTargetArn.")
    return RedrivePolicy(arn, count)


class RedriveAllowPolicy(NamedTuple):
    permission: str
    sources: tuple[str, ...]

    def allows(self, source: Arn) -> bool:
        return self.permission == "allowAll" or (self.permission == "byQueue" and str(source) in self.sources)


def redrive_allow_policy(text: str) -> RedriveAllowPolicy:
    value = _object("RedriveAllowPolicy", text)
    permission, sources = value.get("redrivePermission"), value.get("sourceQueueArns", [])
    if permission not in ("allowAll", "denyAll", "byQueue") or not value.keys() <= {"redrivePermission", "sourceQueueArns"}:
        raise refused("RedriveAllowPolicy", text, "redrivePermission is allowAll, denyAll or byQueue.")
    if not isinstance(sources, list) or not all(isinstance(one, str) and arn_of(one) for one in sources):
        raise refused("RedriveAllowPolicy", text, "sourceQueueArns is a list of queue ARNs.")
    if (permission == "byQueue") != bool(sources) or len(sources) > SOURCES_MAX:
        raise refused("RedriveAllowPolicy", text, f"byQueue names 1 to {SOURCES_MAX} sourceQueueArns, and only byQueue names any.")
    return RedriveAllowPolicy(permission, tuple(sources))


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise refused(name, text, "Not a valid JSON object.")
    return value


def refused(name: str, text: str, reason: str) -> SqsError:
    """For attributes that are documents. AWS says InvalidParameterValue here and not InvalidAttributeValue."""
    return SqsError(errors.PARAMETER_VALUE, f"Value {text[:DOCUMENT_CHARS_SHOWN]} for parameter {name} is invalid. Reason: {reason}")


def applied(attributes: Attributes, given: Mapping[str, str], target: int | None) -> Attributes:
    """The core's attributes with what was given, checked before. `target` is the dead-letter queue's id where RedrivePolicy is given."""
    rules: dict[str, Any] = {}
    extra = dict(attributes.extra)
    for name, value in given.items():
        number = NUMBERS.get(name)
        if number is not None and number.rule:
            rules[number.rule] = int(value) * 1000
        elif value or name not in TEXTS:
            # The core keeps printable text only, and a policy may have line breaks.
            extra[name] = json.dumps(value) if name in TEXTS else value
        else:
            extra.pop(name, None)
        # One of the two encryptions is on, the one that was named last.
        if name == "KmsMasterKeyId" and value:
            extra.pop("SqsManagedSseEnabled", None)
        elif name == "SqsManagedSseEnabled" and value == "true":
            extra.pop("KmsMasterKeyId", None)
        if name == "RedrivePolicy":
            rules["dead_letter"] = target or 0
            rules["receives_max"] = redrive_policy(value).receives_max if value else 0
        elif name == "FifoQueue":
            rules |= {"grouped": True, "dedup_ms": DEDUPLICATION_MS}
    return replace(attributes, **rules, extra=extra)


def made(given: Mapping[str, str], tags: Mapping[str, str], target: int | None, now_s: int) -> Attributes:
    """The core's attributes of a new queue."""
    extra = {CREATED: str(now_s), MODIFIED: str(now_s)}
    if tags:
        extra[TAGS] = json.dumps(dict(tags))
    plain = Attributes(retention_ms=RETENTION_S * 1000, in_flight_max=IN_FLIGHT_MAX, extra=extra)
    return applied(plain, given, target)


def shown(attributes: Attributes) -> dict[str, str]:
    """Every attribute that can be set, as a caller reads it."""
    extra, fifo = attributes.extra, attributes.grouped
    values: dict[str, str] = {}
    for name, number in NUMBERS.items():
        if number.rule:
            values[name] = str(getattr(attributes, number.rule) // 1000)
        elif name != "KmsDataKeyReusePeriodSeconds" or name in extra or "KmsMasterKeyId" in extra:
            values[name] = extra.get(name, str(number.default))
    for name in TEXTS:
        if name in extra:
            values[name] = json.loads(extra[name])
    values["SqsManagedSseEnabled"] = extra.get("SqsManagedSseEnabled", "false" if "KmsMasterKeyId" in extra else "true")
    if fifo:
        values["FifoQueue"] = "true"
        values["ContentBasedDeduplication"] = extra.get("ContentBasedDeduplication", "false")
        values["DeduplicationScope"] = extra.get("DeduplicationScope", "queue")
        values["FifoThroughputLimit"] = extra.get("FifoThroughputLimit", "perQueue")
    values[CREATED], values[MODIFIED] = extra.get(CREATED, "0"), extra.get(MODIFIED, "0")
    return values


def tags_of(attributes: Attributes) -> dict[str, str]:
    found: dict[str, str] = json.loads(attributes.extra.get(TAGS, "{}"))
    return found
