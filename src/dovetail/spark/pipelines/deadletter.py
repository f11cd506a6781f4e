"""Why a message was set apart, in attributes of its own: written by `enrich`, read and taken off again by `dead-letters`. Plain Arrow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dovetail.core.message import Attribute, encode_attributes
from dovetail.limits import ATTRIBUTES_MAX, MESSAGE_BYTES_MAX

ERROR, ERROR_QUEUE, ERROR_SEQUENCE = ACCUSING = ("error", "error-queue", "error-sequence")
ERROR_CHARACTERS_MAX = 1_000
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")


def accused(row: pa.RecordBatch, error: Exception) -> list[tuple[str, Mapping[str, Any]]]:
    """The attributes of a row with those that say why it is here; the text is cut to what there is room for."""
    known = {name: one for name, one in row["attributes"][0].as_py() or () if name not in ACCUSING}
    why = {
        ERROR: {"type": "String", "value": b""},
        ERROR_QUEUE: {"type": "String", "value": str(row["queue"][0]).encode()},
        ERROR_SEQUENCE: {"type": "Number", "value": str(row["sequence"][0]).encode()},
    }
    room = MESSAGE_BYTES_MAX - len(row["body"][0].as_py()) - _size({**known, **why})
    if room < 0 or len(known) + len(why) > ATTRIBUTES_MAX:
        return list(known.items())  # As large as a message can be: it goes as it came.
    why[ERROR]["value"] = text_of(error).encode()[:room].decode(errors="ignore").encode() or b"?"[:room]
    return list({**known, **why}.items())


def _size(attributes: Mapping[str, Mapping[str, Any]]) -> int:
    told = {name: Attribute(one["type"], one["value"]) for name, one in attributes.items()}
    return len(encode_attributes(told)) if len(told) <= ATTRIBUTES_MAX else 0


def text_of(error: Exception) -> str:
    """One line, in characters that every protocol carries."""
    return _UNPRINTABLE.sub(" ", f"{type(error).__name__}: {error}")[:ERROR_CHARACTERS_MAX]
