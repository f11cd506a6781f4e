"""AWS JSON 1.0: bytes to requests, results and errors to bytes. Knows shapes, no queues and no I/O."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from dovetail.doors.http.message import Header, Response
from dovetail.doors.sqs import errors
from dovetail.doors.sqs.errors import SqsError
from dovetail.doors.sqs.shapes import Result, Shape

CONTENT_TYPE = b"application/x-amz-json-1.0"

S = TypeVar("S", bound=Shape)

_encoder = msgspec.json.Encoder()
_decoders: dict[type[Shape], msgspec.json.Decoder[Shape]] = {}
_MISSING = re.compile(r"Object missing required field `([^`]+)`(?: - at `\$\.?([^`]*)`)?")
_WRONG = re.compile(r"Expected `([^`]+)`, got `([^`]+)`(?: - at `\$\.?([^`]*)`)?")


def decode(body: bytes, shape: type[S]) -> S:
    decoder = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    try:
        return decoder.decode(body or b"{}")  # type: ignore[return-value]  # the decoder was made for this shape
    except msgspec.ValidationError as error:
        raise refusal(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SqsError(errors.SERIALIZATION, f"The request body is not the JSON that was expected: {error}") from None


def refusal(text: str) -> SqsError:
    """What the shape said about a request that does not fit it, in the words of AWS."""
    match = _MISSING.match(text)
    if match is not None:
        place = f"{match[2]}." if match[2] else ""
        return errors.missing(place + match[1])
    match = _WRONG.match(text)
    if match is not None:
        kind = match[1].replace(" | null", "")
        return SqsError(errors.SERIALIZATION, f"The parameter {match[3] or 'body'} is {match[2]} where {kind} was expected.")
    return SqsError(errors.SERIALIZATION, text)


def encode(result: Result, request_id: str) -> Response:
    body = b"" if result is None else _encoder.encode(result)
    return Response(200, body, CONTENT_TYPE, ((b"x-amzn-requestid", request_id.encode()),))


def encode_error(error: SqsError, request_id: str) -> Response:
    kind = error.kind
    name = kind.name if "#" in kind.name else f"com.amazonaws.sqs#{kind.name}"
    headers: tuple[Header, ...] = (
        (b"x-amzn-requestid", request_id.encode()),
        (b"x-amzn-errortype", name.encode()),
        (b"x-amzn-query-error", f"{kind.code};{'Sender' if kind.sender else 'Receiver'}".encode()),
    )
    return Response(kind.status, _encoder.encode({"__type": name, "message": error.text}), CONTENT_TYPE, headers)
