"""What is in a message: the characters of a body, its attributes, their size as AWS counts it, and the three MD5s. Pure.

Attributes travel in the store's own encoding (core/message.py). What SQS keeps with a message beside the sender's attributes lies there
too, under names that no sender can give, because they begin with `AWS.`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal
from hashlib import md5 as _long_md5

from dovetail.core.message import Attribute, decode_attributes, encode_attributes
from dovetail.doors.sqs import errors
from dovetail.doors.sqs.errors import SqsError, invalid
from dovetail.doors.sqs.shapes import Value

try:
    # The interpreter's own: of a short body it takes half of what the way through OpenSSL does (0.6 µs in place of 1.2), and some builds
    # leave it out.
    from _md5 import md5 as _md5  # type: ignore[import-not-found]  # it is in no stub
except ImportError:
    _md5 = _long_md5

SHORT_BYTES = 512
ATTRIBUTES_MAX = 10
NAME_CHARS_MAX = 256
NUMBER_CHARS_MAX = 512
NUMBER_DIGITS_MAX = 38
NUMBER_LEAST, NUMBER_MOST = Decimal("1e-128"), Decimal("1e126")
TRACE_CHARS_MAX = 1024
TRACE_HEADER = "AWS.TraceHeader"
SENDER = "AWS.SenderId"
DEDUPLICATION = "AWS.DeduplicationId"

_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
_TYPE = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_BYTES = struct.Struct(">I")


def md5(data: bytes) -> str:
    """SQS's checksum of transport; nobody takes it for a proof of anything."""
    made: str = (_md5 if len(data) < SHORT_BYTES else _long_md5)(data, usedforsecurity=False).hexdigest()
    return made


def body_bytes(text: str) -> bytes:
    """The body as it is stored."""
    if not text:
        raise errors.missing("MessageBody")
    # What is printable has none of the refused characters; this is the fast way past almost every body.
    if not text.isprintable() and _REFUSED.search(text):
        raise SqsError(errors.MESSAGE_CONTENTS)
    return text.encode()


def token(parameter: str, value: str) -> str:
    """A group, deduplication or attempt id."""
    if not _TOKEN.fullmatch(value):
        raise invalid(
            parameter,
            value,
            f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length.",
        )
    return value


def attributes_of(given: Mapping[str, Value]) -> tuple[dict[str, Attribute], int]:
    """A sender's attributes, checked, and the bytes that they count."""
    if len(given) > ATTRIBUTES_MAX:
        raise SqsError(
            errors.PARAMETER_VALUE, f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{ATTRIBUTES_MAX}]."
        )
    made: dict[str, Attribute] = {}
    size = 0
    for name, value in given.items():
        _check_name(name)
        one = made[name] = _attribute(name, value)
        size += len(name.encode()) + len(one.type.encode()) + len(one.value)
    return made, size


def counted(body: str, given: Mapping[str, Value] | None) -> int:
    """The bytes that a message counts, whether or not it may be sent."""
    size = len(body.encode(errors="replace"))
    for name, value in (given or {}).items():
        size += len(name.encode()) + len(value.data_type.encode()) + len(value.binary_value or (value.string_value or "").encode())
    return size


def _check_name(name: str) -> None:
    if not name or len(name) > NAME_CHARS_MAX:
        raise SqsError(errors.PARAMETER_VALUE, f"The message attribute name must have 1 to {NAME_CHARS_MAX} characters.")
    lower = name.lower()
    if not _NAME.fullmatch(name) or name[0] == "." or name[-1] == "." or ".." in name:
        raise SqsError(
            errors.PARAMETER_VALUE,
            f"The message attribute name '{name}' is invalid: it has letters, digits, _, -, . and no . at either end or twice in a row.",
        )
    if lower.startswith(("aws.", "amazon.")):
        raise SqsError(errors.PARAMETER_VALUE, f"The message attribute name '{name}' uses a reserved prefix (AWS. or Amazon.).")


def _attribute(name: str, value: Value) -> Attribute:
    match = _TYPE.fullmatch(value.data_type)
    # A label of characters that XML cannot have would come back changed, and its checksum with it.
    if match is None or len(value.data_type) > NAME_CHARS_MAX or _REFUSED.search(value.data_type):
        raise SqsError(
            errors.PARAMETER_VALUE,
            f"The type of message (user) attribute '{name}' is invalid. "
            "You must use only the following supported type prefixes: Binary, Number, String.",
        )
    if value.string_list_values or value.binary_list_values:
        raise SqsError(errors.UNSUPPORTED, "Message attribute list values in SendMessage operation are not supported.")
    kind = match[1]
    if kind == "Binary":
        if not value.binary_value:
            raise _empty(name, kind)
        return Attribute(value.data_type, value.binary_value)
    if not value.string_value:
        raise _empty(name, kind)
    if _REFUSED.search(value.string_value):
        raise SqsError(errors.PARAMETER_VALUE, errors.MESSAGE_CONTENTS.text)
    if kind == "Number":
        _check_number(name, value.string_value)
    return Attribute(value.data_type, value.string_value.encode())


def _empty(name: str, kind: str) -> SqsError:
    return SqsError(
        errors.PARAMETER_VALUE,
        f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.",
    )


def _check_number(name: str, text: str) -> None:
    """38 digits between 10^-128 and 10^126. The form is looked at first: Decimal also reads underscores, blanks and infinity."""
    good = len(text) <= NUMBER_CHARS_MAX and _NUMBER.fullmatch(text) is not None
    if good:
        number = Decimal(text)
        digits = "".join(map(str, number.as_tuple().digits)).strip("0")
        good = len(digits) <= NUMBER_DIGITS_MAX and (not number or NUMBER_LEAST <= number.copy_abs() <= NUMBER_MOST)
    if not good:
        raise SqsError(errors.PARAMETER_VALUE, f"Can't cast the value of message (user) attribute '{name}' to a number.")


def system_attributes_of(given: Mapping[str, Value]) -> str | None:
    """The trace header: the only system attribute that a sender may give. It does not count towards the size."""
    for name in given:
        if name != "AWSTraceHeader":
            raise SqsError(errors.PARAMETER_VALUE, f"Message system attribute name '{name[:100]}' is invalid.")
    value = given.get("AWSTraceHeader")
    if value is None:
        return None
    text = value.string_value
    if value.data_type != "String" or not text or len(text) > TRACE_CHARS_MAX or _REFUSED.search(text):
        raise SqsError(
            errors.PARAMETER_VALUE,
            f"Message system attribute 'AWSTraceHeader' must be of type String and have 1 to {TRACE_CHARS_MAX} characters.",
        )
    return text


def encode(attributes: Mapping[str, Attribute], *, trace: str | None = None, deduplication: str | None = None, sender: str = "") -> bytes:
    """Everything that is kept with a body; empty where there is nothing."""
    made = dict(attributes)
    for name, value in ((TRACE_HEADER, trace), (DEDUPLICATION, deduplication), (SENDER, sender)):
        if value:
            made[name] = Attribute("String", value.encode())
    return encode_attributes(made)


def decode(data: bytes) -> tuple[dict[str, Attribute], dict[str, str]]:
    """(the sender's attributes, what lies beside them under its stored name)"""
    own: dict[str, Attribute] = {}
    beside: dict[str, str] = {}
    for name, value in decode_attributes(data).items():
        if name.startswith("AWS."):
            beside[name] = value.value.decode()
        else:
            own[name] = value
    return own, beside


def md5_of_attributes(attributes: Mapping[str, Attribute]) -> str:
    """Names in order; each name, type and value behind its length, the value also behind 1 (text) or 2 (binary)."""
    parts: list[bytes] = []
    for name in sorted(attributes):
        one = attributes[name]
        for text in (name.encode(), one.type.encode()):
            parts += (_BYTES.pack(len(text)), text)
        parts += (b"\x02" if one.type.startswith("Binary") else b"\x01", _BYTES.pack(len(one.value)), one.value)
    return md5(b"".join(parts))


def chosen(attributes: Mapping[str, Attribute], names: Iterable[str]) -> dict[str, Attribute]:
    """Those that a receiver asked for: by name, by `prefix.*`, or all of them (`All`, `.*`)."""
    exact, prefixes = set(), []
    for name in names:
        if name in ("All", ".*"):
            return dict(attributes)
        if name.endswith(".*"):
            prefixes.append(name[:-2])
        else:
            exact.add(name)
    return {name: one for name, one in attributes.items() if name in exact or any(name.startswith(prefix) for prefix in prefixes)}


def shown(attribute: Attribute) -> Value:
    if attribute.type.startswith("Binary"):
        return Value(attribute.type, None, attribute.value)
    return Value(attribute.type, attribute.value.decode())
