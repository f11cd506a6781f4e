"""Answers for people: tables, instants, and text that somebody else wrote made harmless for a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

SHOWN_CHARS = 100


def tell(as_json: bool, rows: Sequence[dict[str, Any]], none: str, leave_out: tuple[str, ...] = ()) -> None:
    """A table for people, a list for programs. A column in which nothing is said is left out."""
    if as_json:
        print(json.dumps(rows))
        return
    if not rows:
        print(none, file=sys.stderr)
        return
    columns = [name for name in rows[0] if name not in leave_out and any(row[name] is not None for row in rows)]
    cells = [[_cell(row[name]) for name in columns] for row in rows]
    titles = [name.replace("_", " ") for name in columns]
    widths = [max(len(line[at]) for line in [titles, *cells]) for at in range(len(columns))]
    numbers = [isinstance(rows[0][name], int) for name in columns]
    for line in [titles, *cells]:
        parts = (cell.rjust(width) if number else cell.ljust(width) for cell, width, number in zip(line, widths, numbers, strict=True))
        print("  ".join(parts).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else line(str(value))


def line(text: str) -> str:
    """One line of printable text, not too long."""
    kept = "".join(letter if letter.isprintable() else " " for letter in islice(text, SHOWN_CHARS))
    return kept + ("…" if len(text) > SHOWN_CHARS else "")


def safe(text: str) -> str:
    """Somebody else wrote it: what could steer a terminal is not passed on."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text)


def instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
