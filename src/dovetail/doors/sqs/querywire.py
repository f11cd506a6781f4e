"""The query protocol: forms to requests, results and errors to XML (or to JSON where the caller accepts only that). Knows no I/O.

The names of members come from shapes.py. A list is numbered from 1, in any order and with gaps; a map is a list of name and value:

    Action=SendMessage&MessageBody=hi&MessageAttribute.1.Name=city&MessageAttribute.1.Value.DataType=String&…Value.StringValue=Rome
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from html import escape
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from dovetail.doors.http.message import Response
from dovetail.doors.sqs import errors, jsonwire
from dovetail.doors.sqs.errors import SqsError
from dovetail.doors.sqs.shapes import Result, Shape

CONTENT_TYPE = b"text/xml"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
FIELDS_MAX = 10_000
"""Names in one form; the largest batch with the most attributes has about 700."""

S = TypeVar("S", bound=Shape)
_WHOLE = re.compile(r"-?[0-9]{1,18}")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Member(NamedTuple):
    """How one field of a shape looks in this protocol."""

    name: str
    """Of the model, which is that of JSON."""
    query: str
    kind: str
    """value · struct · list · map"""
    item: type[Shape] | None
    """The shape of the items of a list or map, or None for plain values."""
    key: str
    value: str
    plain: type[Any]
    """The type of a plain value, or of the plain items."""


_members: dict[type[Shape], tuple[Member, ...]] = {}


def members(shape: type[Shape]) -> tuple[Member, ...]:
    known = _members.get(shape)
    if known is None:
        hints = get_type_hints(shape, include_extras=True)
        known = _members[shape] = tuple(_member(one.encode_name, hints[one.name]) for one in msgspec.structs.fields(shape))
    return known


def _member(name: str, hint: Any) -> Member:
    extra: Mapping[str, str] = {}
    if get_origin(hint) is Annotated:
        hint, meta = get_args(hint)[:2]
        extra = meta.extra or {}
    if get_origin(hint) in (Union, UnionType):
        hint = next(one for one in get_args(hint) if one is not type(None))
    origin, query = get_origin(hint), extra.get("query", name)
    item = get_args(hint)[-1] if origin in (list, dict) else hint
    kind = "list" if origin is list else "map" if origin is dict else "struct" if _is_shape(hint) else "value"
    return Member(name, query, kind, item if _is_shape(item) else None, extra.get("key", ""), extra.get("value", ""), item)


def _is_shape(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Shape)


# Requests


def form(data: bytes) -> dict[str, str]:
    """The fields of a form. A name that comes twice is refused: nobody could say which one was meant."""
    try:
        pairs = parse_qsl(data.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except UnicodeDecodeError:
        raise SqsError(errors.SERIALIZATION, "A form is percent-encoded UTF-8.") from None
    except ValueError:
        raise SqsError(errors.SERIALIZATION, f"A form has at most {FIELDS_MAX} fields.") from None
    made = dict(pairs)
    if len(made) != len(pairs):
        raise SqsError(errors.SERIALIZATION, "A form has each of its fields once.")
    return made


def decode(fields: Mapping[str, str], shape: type[S]) -> S:
    try:
        return msgspec.convert(_build(_tree(fields), shape), type=shape)
    except msgspec.ValidationError as error:
        raise jsonwire.refusal(str(error)) from None


def _tree(fields: Mapping[str, str]) -> dict[str, Any]:
    """Dotted names as nested dicts; a value that stands where a branch is, is dropped as AWS does."""
    root: dict[str, Any] = {}
    for name, value in fields.items():
        node, (*path, leaf) = root, name.split(".")
        if len(path) > 8:
            raise SqsError(errors.SERIALIZATION, f"{name[:80]} is nested deeper than any parameter.")
        for part in path:
            branch = node.setdefault(part, {})
            if not isinstance(branch, dict):
                branch = node[part] = {}
            node = branch
        if not isinstance(node.get(leaf), dict):
            node[leaf] = value
    return root


def _build(tree: Mapping[str, Any], shape: type[Shape]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for member in members(shape):
        found = tree.get(member.query)
        if found is None:
            continue
        if member.kind == "list":
            made[member.name] = [_item(one, member) for one in _numbered(found, member.query)]
        elif member.kind == "map":
            pairs = [_pair(one, member) for one in _numbered(found, member.query)]
            made[member.name] = dict(pairs)
            if len(made[member.name]) != len(pairs):
                raise SqsError(errors.PARAMETER_VALUE, f"{member.query} has one {member.key} twice.")
        else:
            made[member.name] = _value(found, member)
    return made


def _numbered(found: Any, name: str) -> list[Any]:
    if not isinstance(found, dict):
        return [found]  # `AttributeName=All` without a number, which old clients send
    try:
        return [found[key] for key in sorted(found, key=_number)]
    except ValueError:
        raise SqsError(errors.SERIALIZATION, f"{name} is numbered from 1 on.") from None


def _number(text: str) -> int:
    if not text.isdigit() or len(text) > 6:
        raise ValueError(text)
    return int(text)


def _item(found: Any, member: Member) -> Any:
    if member.item is not None:
        return _build(found, member.item) if isinstance(found, dict) else found
    return _value(found, member)


def _value(found: Any, member: Member) -> Any:
    """One value as its type, read here: a general converter takes `null` for nothing, also where it is good base64."""
    if isinstance(found, dict):
        raise SqsError(errors.SERIALIZATION, f"{member.query} is one value.")
    if member.plain is int:
        if not _WHOLE.fullmatch(found):
            raise SqsError(errors.SERIALIZATION, f"The parameter {member.query} is {found[:40]!r} where int was expected.")
        return int(found)
    if member.plain is bytes:
        try:
            return b64decode(found, validate=True)
        except ValueError:
            raise SqsError(errors.SERIALIZATION, f"The parameter {member.query} is not base64.") from None
    return found


def _pair(found: Any, member: Member) -> tuple[str, Any]:
    if not isinstance(found, dict) or not isinstance(found.get(member.key), str):
        raise errors.missing(f"{member.query}.n.{member.key}")
    return found[member.key], _item(found.get(member.value, ""), member)


# Results


def encode(action: str, result: Result, request_id: str) -> Response:
    inner = _xml(result) if result is not None else ""
    text = (
        f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">'
        + (f"<{action}Result>{inner}</{action}Result>" if result is not None else "")
        + f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
    )
    return Response(200, text.encode(), CONTENT_TYPE, ((b"x-amzn-requestid", request_id.encode()),))


def _xml(value: Shape) -> str:
    parts: list[str] = []
    names = [one.name for one in msgspec.structs.fields(value)]
    for attribute, member in zip(names, members(type(value)), strict=True):
        found = getattr(value, attribute)
        if found is None:
            continue
        if member.kind == "list":
            parts += [_element(member.query, one) for one in found]
        elif member.kind == "map":
            for key, one in found.items():
                inner = _element(member.key, key) + _element(member.value, one)
                parts.append(f"<{member.query}>{inner}</{member.query}>")
        else:
            parts.append(_element(member.query, found))
    return "".join(parts)


def _element(name: str, value: Any) -> str:
    return f"<{name}>{_content(value)}</{name}>"


def _content(value: Any) -> str:
    if isinstance(value, Shape):
        return _xml(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return b64encode(value).decode()
    text = escape(str(value), quote=False)
    # XML has no way at all to write most control characters, and a carriage return written as itself would be read back as a line feed.
    return text if text.isprintable() else NOT_XML.sub("\ufffd", text).replace("\r", "&#xD;")


def encode_error(error: SqsError, request_id: str) -> Response:
    kind = error.kind
    text = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{"Sender" if kind.sender else "Receiver"}</Type>'
        f"<Code>{kind.code}</Code><Message>{_content(error.query_text)}</Message><Detail/></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return Response(kind.status, text.encode(), CONTENT_TYPE, ((b"x-amzn-requestid", request_id.encode()),))


# The same as JSON, for callers that accept nothing else

_OLDER = {"Messages": "messages", "QueueUrls": "queueUrls"}
"""What this form calls otherwise than AWS JSON does."""


def wants_json(accept: bytes | None) -> bool:
    """Whether JSON is what a caller would rather have. (axios says `application/json, text/plain, */*` where nobody told it otherwise.)"""
    return accept is not None and accept.partition(b",")[0].partition(b";")[0].strip().lower() == b"application/json"


def encode_json(action: str, result: Result, request_id: str) -> Response:
    """As AWS does it since long before AWS JSON: every member is there, with null for nothing, and a map is a list as it is in XML."""
    metadata = {"ResponseMetadata": {"RequestId": request_id}}
    answer = metadata if result is None else {f"{action}Result": _told(result), **metadata}
    return Response(
        200, msgspec.json.encode({f"{action}Response": answer}), b"application/json", ((b"x-amzn-requestid", request_id.encode()),)
    )


def _told(value: Any) -> Any:
    if not isinstance(value, Shape):
        return value
    made: dict[str, Any] = {}
    names = [one.name for one in msgspec.structs.fields(value)]
    for attribute, member in zip(names, members(type(value)), strict=True):
        found = getattr(value, attribute)
        if found is not None and member.kind == "list":
            found = [_told(one) for one in found]
        elif found is not None and member.kind == "map":
            found = [{member.key: key, member.value: _told(one)} for key, one in found.items()]
        made[_OLDER.get(member.name, member.name)] = found
    return made


def encode_json_error(error: SqsError, request_id: str) -> Response:
    kind = error.kind
    told = {"Type": "Sender" if kind.sender else "Receiver", "Code": kind.code, "Message": error.query_text, "Detail": None}
    answer = {"Error": told, "RequestId": request_id}
    return Response(kind.status, msgspec.json.encode(answer), b"application/json", ((b"x-amzn-requestid", request_id.encode()),))
