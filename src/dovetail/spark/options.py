"""What `.option(…)` may say: every option, declared once, checked before anything is asked of a node. Pure but for the environment, and
for the file that bodySchema may name.

Spark hands options over as texts, under names without case. A name that is not known is refused: a limit that was spelled wrongly and is
silently not kept is found out in production.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dovetail.client.address import Credentials, targets_of
from dovetail.errors import BadRequest
from dovetail.limits import FACTS_BYTES_DEFAULT, RESERVATION_NAME_BYTES_MAX
from dovetail.spark.reach import Reach
from dovetail.spark.typed import Bodies, bodies_of

COLUMNS = ("queue", "sequence", "time", "id", "group", "attributes", "body")
WAITING_COLUMNS = (*COLUMNS, "receives", "state")
"""Without a tap a read shows what waits now, and how it stands with each."""
RESERVED_COLUMNS = (*COLUMNS, "receives")
"""How often others had received it before."""
RESERVED_ROWS = 100_000
"""Of a micro-batch that says no limit: what it takes nobody else gets, so it does not take all there is."""

FACTS = "facts"
"""Stands for a queue's name where all queues are read as facts: in offsets, and where sequences are named by queue."""
FACTS_COLUMNS = (
    "number", "position", "index", "time", "kind", "outcome", "queue", "queue_id", "sequence", "count", "delivery", "receives",
    "duration_ms", "due", "bytes", "target", "target_sequence", "producer", "producer_number", "owner", "batch",
)  # fmt: skip

KEY, SECRET = "DOVETAIL_ACCESS_KEY_ID", "DOVETAIL_SECRET_ACCESS_KEY"
ENDPOINT = "dovetail://127.0.0.1:9325"
TAP_BYTES = 64 << 30
_DAY_MS = 86_400_000

Start = str | int | dict[str, int]
"""earliest or latest; a time in ms since 1970; or for each queue a sequence."""

NAMES = """endpoint queue table tap mode reservation namespace startingOffsets endingOffsets maxRowsPerTrigger maxBytesPerTrigger
    minRowsPerTrigger maxTriggerDelay columns failOnDataLoss partitions timeout key secret sessionToken tapMaxAge tapMaxBytes
    bodyFormat bodySchema bodyMessage""".split()
_KNOWN = {name.lower(): name for name in NAMES}


@dataclass(frozen=True, slots=True)
class Options:
    queue: str
    endpoint: str = ENDPOINT
    tap: str = ""
    facts: bool = False
    """table=facts: what happened to all queues of a namespace, through a facts tap."""
    reservation: str = ""
    """With a tap there is none: mode=reserve takes messages from the queue in its place."""
    namespace: str = ""
    starting: Start = "earliest"
    ending: Start = "latest"
    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    delay_max_s: float = 60.0
    columns: tuple[str, ...] = COLUMNS
    fail_on_data_loss: bool = True
    partitions: int | None = None
    timeout_s: float = 120.0
    tap_age_ms: int = 7 * _DAY_MS
    tap_bytes: int = TAP_BYTES
    bodies: Bodies | None = None
    credentials: Credentials = field(default=Credentials(), repr=False)
    """Travels to the tasks inside of what is pickled for them, and is in no text of ours."""

    @property
    def names(self) -> list[str]:
        """The queues by name; one that holds a * is a pattern."""
        return _named(self.queue)

    @property
    def typed(self) -> bool:
        return self.bodies is not None and "body" in self.columns

    def reach(self, first_patience_s: float = float("inf")) -> Reach:
        return Reach(self.endpoint, self.credentials, self.timeout_s, min(self.timeout_s, first_patience_s))


def options_of(told: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Options:
    said = {str(name).lower(): str(value) for name, value in told.items() if str(name).lower() != "path"}
    for name in said:
        if name not in _KNOWN:
            raise BadRequest(f"there is no option {name!r}; there are {', '.join(NAMES)}")
    get = said.get
    facts = _facts(said)
    queue = FACTS if facts else get("queue", "")
    if not queue.strip(" ,"):
        raise BadRequest("option queue: the name of a queue, several with commas between them, or a pattern with *")
    endpoint = get("endpoint", ENDPOINT)
    targets_of(endpoint)
    tap, reservation = get("tap", ""), _reservation(said)
    known = FACTS_COLUMNS if facts else COLUMNS if tap else RESERVED_COLUMNS if reservation else WAITING_COLUMNS
    return Options(
        queue=queue,
        endpoint=endpoint,
        tap=tap,
        facts=facts,
        reservation=reservation,
        namespace=get("namespace", ""),
        starting=_start("startingOffsets", get("startingoffsets", "earliest"), queue),
        ending=_start("endingOffsets", get("endingoffsets", "latest"), queue),
        rows_max=_count("maxRowsPerTrigger", get("maxrowspertrigger")) or (RESERVED_ROWS if reservation else None),
        bytes_max=_count("maxBytesPerTrigger", get("maxbytespertrigger")),
        rows_min=_count("minRowsPerTrigger", get("minrowspertrigger")),
        delay_max_s=seconds("maxTriggerDelay", get("maxtriggerdelay", "60")),
        columns=_columns(get("columns"), known),
        fail_on_data_loss=truth("failOnDataLoss", get("failondataloss", "true")),
        partitions=_count("partitions", get("partitions")),
        timeout_s=seconds("timeout", get("timeout", "120")),
        tap_age_ms=int(1000 * seconds("tapMaxAge", get("tapmaxage", f"{7 * _DAY_MS // 1000}"))),
        tap_bytes=_count("tapMaxBytes", get("tapmaxbytes")) or (FACTS_BYTES_DEFAULT if facts else TAP_BYTES),
        bodies=bodies_of(get("bodyformat", ""), get("bodyschema", ""), get("bodymessage", "")),
        credentials=Credentials(
            get("key") or environment.get(KEY, ""), get("secret") or environment.get(SECRET, ""), get("sessiontoken", "")
        ),
    )


def _named(queues: str) -> list[str]:
    return [name.strip() for name in queues.split(",") if name.strip()]


def matches(pattern: str, name: str) -> bool:
    """A * stands for anything, and no other character for any but itself: queues may be called so."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _facts(said: Mapping[str, str]) -> bool:
    table = said.get("table", "").lower()
    if table not in ("", "messages", "facts"):
        raise BadRequest(f"option table: messages or facts, not {table!r}")
    if table != "facts":
        return False
    if not said.get("tap"):
        raise BadRequest("option table: facts are read through a tap: option tap, a name of your own, one for each query")
    for other in ("queue", "mode", "bodyFormat"):
        if said.get(other.lower()):
            raise BadRequest(f"option {other}: not with table=facts, which tells of all queues of a namespace (filter by the column queue)")
    return True


def _reservation(said: Mapping[str, str]) -> str:
    """The reservation's name where mode=reserve says that there is one."""
    mode, name = said.get("mode", "").lower(), said.get("reservation", "")
    if mode not in ("", "tap", "reserve"):
        raise BadRequest(f"option mode: tap or reserve, not {mode!r}")
    if mode != "reserve":
        if name:
            raise BadRequest("option reservation: it goes with mode=reserve, which takes messages from the queue's other consumers")
        if mode and not said.get("tap"):
            raise BadRequest("option mode: tap needs the option tap, a name of your own")
        return ""
    if not 1 <= len(name.encode()) <= RESERVATION_NAME_BYTES_MAX:
        raise BadRequest(f"option reservation: a name of 1 to {RESERVATION_NAME_BYTES_MAX} bytes, one for each query")
    for other in ("tap", "startingOffsets", "endingOffsets", "tapMaxAge", "tapMaxBytes"):
        if said.get(other.lower()):
            raise BadRequest(f"option {other}: not with mode=reserve, which takes what can be received, in the queue's order")
    return name


def _count(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise BadRequest(f"option {name}: a whole number above 0, not {text!r}")
    return value


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(name: str, text: str) -> float:
    """90, 90s, 500ms, 15m, 1h, 7d"""
    number = text.strip().rstrip("msdh")
    unit = text.strip()[len(number) :] or "s"
    try:
        value = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        value = -1.0
    if not 0 <= value < 1e9:
        raise BadRequest(f"option {name}: a time like 30s, 500ms, 15m, 1h or 7d, not {text!r}")
    return value


def truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadRequest(f"option {name}: true or false, not {text!r}")
    return text.lower() == "true"


def _columns(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """In the order of the schema, whatever order they are named in."""
    if text is None:
        return known
    named = [name.strip() for name in text.split(",") if name.strip()]
    for name in named:
        if name not in known:
            raise BadRequest(f"option columns: there is no column {name!r}; there are {', '.join(known)}")
    if not named:
        raise BadRequest(f"option columns: at least one of {', '.join(known)}")
    return tuple(name for name in known if name in named)


def _start(name: str, text: str, queues: str) -> Start:
    text = text.strip()
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.startswith("{"):
        try:
            told = json.loads(text)
        except ValueError:
            told = None
        if isinstance(told, dict) and all(type(sequence) is int and sequence >= 0 for sequence in told.values()):
            for queue in told:
                if not any(matches(pattern, queue) for pattern in _named(queues)):
                    raise BadRequest(f"option {name}: {queue!r} is none of the queues that are read ({queues})")
            return told
    else:
        try:
            when = datetime.fromisoformat(text)
            return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
        except ValueError:
            pass
    raise BadRequest(f'option {name}: earliest, latest, a time like 2026-05-01T12:00:00Z, or sequences like {{"orders": 5}}; not {text!r}')
