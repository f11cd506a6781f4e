"""Look at nodes that share a log. --store reads the log itself, whether or not a node runs: which nodes have spoken on it, who keeps it,
what it keeps, how its engine is, and which settings nodes would refuse. --endpoint asks nodes how far each of them is. Nothing is changed
by either. The exit code is 1 when something is wrong."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest
from ..node import look
from . import tables
from .folder import size

if TYPE_CHECKING:
    from ..stores.shared.report import LogReport

EXAMPLES = """\
examples:
  dovetail cluster status --store nats://nats-1:4222,nats-2:4222,nats-3:4222/shop
  dovetail cluster status --endpoint http://node-1:9324,http://node-2:9324
  dovetail cluster status --store nats://… --endpoint http://… --json | jq '.wrong'
"""

ANSWER_S = 10.0


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="status")
    status = actions.add_parser("status", help="nodes, logs, snapshots, the engine's health, and what is wrong")
    status.add_argument("--store", metavar="URL", help="the store that the nodes share: nats:// or kafka://HOST:PORT,…/NAMESPACE")
    status.add_argument("--endpoint", metavar="URL,…", default="", help="HTTP doors of nodes")
    status.add_argument("--json", action="store_true", help="one object, for programs")


def run(given: argparse.Namespace) -> int:
    endpoints = [one.rstrip("/") for one in given.endpoint.split(",") if one]
    if not given.store and not endpoints:
        raise BadRequest("say which log (--store nats://…) or which nodes (--endpoint http://…,http://…)")
    log = asyncio.run(look(given.store)) if given.store else None
    with ThreadPoolExecutor(max(1, len(endpoints))) as pool:
        nodes = list(pool.map(_node, endpoints))
    told = _told(log, nodes)
    if given.json:
        print(json.dumps(told))
    else:
        _print(told)
    return int(bool(told["wrong"]))


# What nodes say


def _node(endpoint: str) -> dict[str, Any]:
    row: dict[str, Any] = {"node": endpoint, "ready": False, "writer": None, "entry": None, "wrong": None}
    try:
        ready = _get(f"{endpoint}/-/ready")[0] == 200
        code, page = _get(f"{endpoint}/metrics")
    except (OSError, ValueError) as error:
        return row | {"wrong": f"does not answer: {error}"}
    metrics = _metrics(page) if code == 200 else {}
    if "dovetail_log_position" not in metrics:
        return row | {"ready": ready, "wrong": "shares no log" if metrics else "does not show its metrics"}
    connected = bool(metrics["dovetail_log_connected"])
    writer = f"{int(metrics['dovetail_log_writer']):08x}" if "dovetail_log_writer" in metrics else None
    return row | {
        "ready": ready,
        "writer": writer,
        "entry": int(metrics["dovetail_log_position"]),
        "keeper": bool(metrics["dovetail_chores_keeper"]),
        "connected": connected,
        "replay_age_s": round(metrics["dovetail_replay_age_seconds"], 1),
        "under_way": int(metrics["dovetail_log_under_way"]),
        "resent": int(metrics["dovetail_log_resent"]),
        "reconnects": int(metrics.get("dovetail_log_reconnects", 0)),
        "wrong": "is cut off from its log" if not connected else "is not ready" if not ready else None,
    }


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def _metrics(page: str) -> Mapping[str, float]:
    """Those without labels."""
    return {name: float(value) for name, value in re.findall(r"^(dovetail_\w+) (\S+)$", page, re.M)}


# Together


def _told(log: LogReport | None, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    wrong = [f"{row['node']} {row['wrong']}" for row in nodes if row["wrong"]]
    known = [row["entry"] for row in nodes if row["entry"] is not None]
    tail = max([log.health.next if log is not None else 0, *known])
    for row in nodes:
        row["behind"] = tail - row["entry"] if row["entry"] is not None else None
    keepers = sum(bool(row.get("keeper")) for row in nodes)
    if keepers > 1:
        wrong.append(f"{keepers} nodes take themselves for the keeper: look again; if it stays so they do not see the same log")
    made: dict[str, Any] = {"nodes": nodes, "logs": [], "wrong": wrong}
    if log is not None:
        health = log.health
        wrong += [f"{health.log}: {line}" for line in health.wrong]
        if log.unread:
            wrong.append(f"{health.log} was not read: {log.unread}")
        made["logs"].append(
            {
                "log": health.log,
                "engine": health.version,
                "durability": health.durability,
                "first": health.first,
                "next": health.next,
                "bytes": health.bytes,
                "trimmed": log.trimmed,
                "time_ms": log.time,
                "queues": log.queues,
                "messages": log.messages,
                "copies": [copy._asdict() for copy in health.copies],
                "writers": [one._asdict() for one in sorted(log.speakers, key=lambda one: (one.silent, one.writer))],
                "snapshots": [one._asdict() for one in log.snapshots],
            }
        )
    return made


def _print(told: dict[str, Any]) -> None:
    for log in told["logs"]:
        kept = f"entries {log['first']:,} to {log['next'] - 1:,}" + (f", {size(log['bytes'])}" if log["bytes"] is not None else "")
        print(f"{log['log']}: {log['engine']}, {log['durability']}, {kept}")
        print(f"  {log['queues']:,} queues, {log['messages']:,} messages\n")
        tables.tell(False, [_copy(copy) for copy in log["copies"]], "no copy of the log is known")
        print()
        tables.tell(False, [_writer(one) for one in log["writers"]], "no node has spoken")
        print()
        tables.tell(
            False, [_snapshot(one, log["next"]) for one in log["snapshots"]], "no snapshot yet: a node that joins applies all of it"
        )
        print()
    if told["nodes"]:
        columns = ("node", "ready", "writer", "keeper", "entry", "behind", "replay_age_s", "under_way", "resent", "reconnects")
        tables.tell(False, [{name: _word(row.get(name)) for name in columns} for row in told["nodes"]], "")
        print()
    for line in told["wrong"]:
        print(f"wrong: {tables.safe(line)}")
    if not told["wrong"]:
        print("nothing is wrong")


def _word(value: object) -> object:
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _copy(copy: dict[str, Any]) -> dict[str, Any]:
    state = "leads" if copy["leads"] else "current" if copy["current"] else "NOT CURRENT"
    return {"server": copy["server"], "copy": state, "behind": copy["behind"]}


def _writer(one: dict[str, Any]) -> dict[str, Any]:
    state = "silent" if one["silent"] else "keeper" if one["keeper"] else "speaks"
    heard = f"{one['heard_ms'] / 1000:,.1f} s ago"
    return {"writer": one["writer"], "state": state, "heard": heard, "behind_then": one["behind"], "version": one["version"]}


def _snapshot(one: dict[str, Any], following: int) -> dict[str, Any]:
    age = None if one["age_ms"] is None else f"{one['age_ms'] / 1000:,.0f} s"
    return {"snapshot_at": one["entry"], "size": size(one["bytes"]), "age": age, "entries_since": following - one["entry"]}
