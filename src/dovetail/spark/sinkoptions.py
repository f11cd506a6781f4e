"""What `.option(…)` of a write may say, declared once and checked before anything is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.client.address import Credentials, targets_of
from dovetail.errors import BadRequest
from dovetail.limits import BATCH_NUMBER_MAX
from dovetail.spark.options import ENDPOINT, KEY, SECRET, seconds, truth
from dovetail.spark.reach import Reach

NAMES = "endpoint queue namespace create extraColumns owner batch timeout key secret sessionToken".split()
_KNOWN = {name.lower() for name in NAMES}
_SPARKS = {"path", "checkpointlocation"}
"""Spark hands its own over as well."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    queue: str = ""
    endpoint: str = ENDPOINT
    namespace: str = ""
    create: bool = False
    ignore: bool = False
    """Columns that are no part of a message."""
    owner: str = ""
    batch: int = -1
    timeout_s: float = 120.0
    credentials: Credentials = field(default=Credentials(), repr=False)

    def reach(self) -> Reach:
        return Reach(self.endpoint, self.credentials, self.timeout_s, self.timeout_s)


def sink_options_of(told: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> SinkOptions:
    said = {str(name).lower(): str(value) for name, value in told.items() if str(name).lower() not in _SPARKS}
    for name in said:
        if name not in _KNOWN:
            raise BadRequest(f"there is no option {name!r} of a write; there are {', '.join(NAMES)}")
    get = said.get
    endpoint = get("endpoint", ENDPOINT)
    targets_of(endpoint)
    queue = get("queue", "").strip()
    if "*" in queue or "," in queue:
        raise BadRequest(f"option queue: one name, not {queue!r}; for several give the rows a column queue")
    extra = get("extracolumns", "refuse")
    if extra not in ("refuse", "ignore"):
        raise BadRequest(f"option extraColumns: refuse or ignore, not {extra!r}")
    if ("owner" in said) != ("batch" in said):
        raise BadRequest("options owner and batch: both or neither (whose batch this is, and its number: foreachBatch knows both)")
    return SinkOptions(
        queue=queue,
        endpoint=endpoint,
        namespace=get("namespace", ""),
        create=truth("create", get("create", "false")),
        ignore=extra == "ignore",
        owner=get("owner", ""),
        batch=_batch(said["batch"]) if "batch" in said else -1,
        timeout_s=seconds("timeout", get("timeout", "120")),
        credentials=Credentials(
            get("key") or environment.get(KEY, ""), get("secret") or environment.get(SECRET, ""), get("sessiontoken", "")
        ),
    )


def _batch(text: str) -> int:
    number = int(text) if text.strip().isdecimal() else -1
    if not 0 <= number <= BATCH_NUMBER_MAX:
        raise BadRequest(f"option batch: a whole number from 0 on, not {text!r}")
    return number
