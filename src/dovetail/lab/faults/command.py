"""What the command line asks for: the list of plans, and one run in a folder that goes away."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ...errors import BadRequest
from ..bench import FOLDER_ENVIRONMENT
from .judge import Report
from .plan import Plan, from_json
from .plans import PLANS
from .run import STORES, able
from .run import run as run_plan


def listed() -> Iterator[str]:
    for plan in PLANS.values():
        yield f"{plan.name:<18} {plan.attacks} ({', '.join(store for store in STORES if able(plan, store))})"


def find(name: str) -> Plan:
    if name in PLANS:
        return PLANS[name]
    if name.endswith(".json"):
        try:
            return from_json(Path(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise BadRequest(f"the plan cannot be read: {error}") from None
    raise BadRequest(f"there is no plan {name!r}; there are {', '.join(PLANS)}, and JSON files")


def run(name: str, seconds: float, store: str, nodes: int, seed: int, keep: Path | None) -> Report:
    plan = find(name)
    if not able(plan, store):
        raise BadRequest(f"the plan {plan.name} breaks what {store} does not have")
    if not 1 <= seconds <= 86_400 or not 1 <= nodes <= 9:
        raise BadRequest("a run takes 1 second to a day, with 1 to 9 nodes")
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="dovetail-faults-", dir=os.environ.get(FOLDER_ENVIRONMENT)) as folder:
        return asyncio.run(run_plan(plan, Path(folder), seconds=seconds, store=store, nodes=nodes, seed=seed, keep=keep, say=say))
