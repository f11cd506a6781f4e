"""A consistency report that is kept up while queues are used: `report.json` for programs, `report.html` for people, each whole whenever it
is looked at. Knows no Spark and no Arrow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

Report = Mapping[str, Any]

_BARS = " ▁▂▃▄▅▆▇█"
_REFRESH_S = 5
_HEADS = {
    "queue": "queue",
    "sent": "sent",
    "delivered": "delivered",
    "depth": "in the queue",
    "duplication": "delivered again",
    "out_of_order": "out of order",
    "displacement": "displaced by",
    "latency_p50_ms": "latency p50",
    "latency_p99_ms": "p99",
    "late_p99_ms": "late p99",
    "minutes": "delivered, by minute",
}


def line(row: Report) -> str:
    """One queue in a line."""
    order = f"{row['out_of_order']:.1%}" if row["exact"] else f"at most {row['out_of_order']:.1%}"
    latency = "" if row["latency_p99_ms"] is None else f", latency p50 {row['latency_p50_ms']:,.0f} ms, p99 {row['latency_p99_ms']:,.0f} ms"
    return (
        f"{row['queue']}: {row['delivered']:,} of {row['sent']:,} delivered, {row['depth']:,} in the queue, delivered again"
        f" {row['duplication']:.3%}, out of order {order}, displaced by {row['displacement']:.2f}{latency}"
    )


def write(folder: Path, rows: Sequence[Report], at: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _replaced(folder / "report.json", json.dumps({"version": 1, "at": at, "queues": list(rows)}, indent=1) + "\n")
    _replaced(folder / "report.html", page(rows, at))


def _replaced(file: Path, text: str) -> None:
    new = file.with_suffix(f"{file.suffix}.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, file)


def page(rows: Sequence[Report], at: str) -> str:
    heads = "".join(f"<th>{head}</th>" for head in _HEADS.values())
    body = "\n".join(f"<tr>{''.join(f'<td>{_cell(row, name)}</td>' for name in _HEADS)}</tr>" for row in rows)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="{_REFRESH_S}">\n'
        "<title>Consistency</title>"
        "<style>body{font:15px sans-serif;margin:2em}td,th{padding:.3em .8em;text-align:right;border-bottom:1px solid #ddd}"
        "td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}td:last-child{font-family:monospace}</style>\n"
        f"<h1>Consistency of {len(rows):,} queues</h1><p>as of {escape(at)}</p>\n<table><tr>{heads}</tr>\n{body}\n</table>\n"
        "<p>“At most”: messages came later than the window of the report reaches back.</p></html>\n"
    )


def _cell(row: Report, name: str) -> str:
    value = row[name]
    match name:
        case "queue":
            return escape(str(value))
        case "minutes":
            return bars([minute["delivered"] for minute in value])
        case "duplication":
            return f"{value:.3%}"
        case "out_of_order":
            return f"{value:.2%}" if row["exact"] else f"at most {value:.2%}"
        case "displacement":
            return f"{value:.2f}"
        case _ if name.endswith("_ms"):
            return "" if value is None else f"{value:,.0f} ms"
        case _:
            return f"{value:,}"


def bars(values: Sequence[float]) -> str:
    """A row of little bars, the highest full."""
    most = max(values, default=0)
    return "".join(_BARS[round((len(_BARS) - 1) * value / most)] if most else _BARS[0] for value in values)
