"""`dovetail queue reservations` and `release`: what jobs have set aside in a queue, and how it is given back where a job is gone for good.

SQS knows nothing of reservations, so these two speak to the native door. Keys are those of the environment, by Dovetail's names or AWS's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from .. import blocking
from ..errors import BadRequest, DovetailError, NoSuchQueue, NoSuchReservation
from . import tables

ENDPOINT = "dovetail://127.0.0.1:9325"
TIMEOUT_S = 30.0


def arguments(verbs: Any) -> None:
    shown = _verb(verbs, "reservations", "what jobs have set aside in a queue, beside its other consumers")
    given_back = _verb(verbs, "release", "give back what a job has set aside; the job is refused from then on")
    for parser in (shown, given_back):
        parser.add_argument("--endpoint", metavar="URL", help=f"the node's native door (or DOVETAIL_ENDPOINT; default: {ENDPOINT})")
        parser.add_argument("--json", action="store_true", help="for programs")
    given_back.add_argument("reservation", metavar="RESERVATION", help="its name")
    given_back.add_argument("--forget", action="store_true", help="the name, too: the next job of that name begins with batch 0")
    given_back.add_argument("--yes", action="store_true", help="do not ask, also at a keyboard")


def _verb(verbs: Any, name: str, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
    made.add_argument("queue", metavar="QUEUE", help="its name")
    return made


def run(given: argparse.Namespace) -> None:
    environment = os.environ
    url = given.endpoint or environment.get("DOVETAIL_ENDPOINT") or ENDPOINT
    if not url.startswith(("dovetail://", "dovetails://")):
        raise BadRequest(f"{url}: reservations are the native door's: --endpoint dovetail://HOST:PORT, as the node's ready line says")
    key, secret = (
        environment.get(f"DOVETAIL_{name}") or environment.get(f"AWS_{name}", "") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")
    )
    with blocking.connect(url, key=key, secret=secret, timeout_s=TIMEOUT_S) as node:
        if given.queue not in node.queues(given.queue):
            raise NoSuchQueue(f"There is no queue {given.queue!r}")
        queue = node.queue(given.queue)
        (release if given.verb == "release" else show)(queue, given)


def show(queue: Any, given: argparse.Namespace) -> None:
    rows = [
        {
            "name": one.name,
            "owned": "yes" if one.epoch else "no",
            "last_batch": one.last,
            "settled": one.settled,
            "open_batches": len(one.batches),
            "messages": sum(one.batches.values()),
        }
        for one in queue.reservations()
    ]
    tables.tell(given.json, rows, f"nobody has set anything aside in {given.queue}")


def release(queue: Any, given: argparse.Namespace) -> None:
    known = next((one for one in queue.reservations() if one.name == given.reservation), None)
    if known is None:
        raise NoSuchReservation(f"{given.queue} has no reservation {given.reservation!r}")
    if not given.yes and sys.stdin.isatty():
        count = sum(known.batches.values())
        print(
            f"give back {count:,} messages of {given.reservation}? Others receive them, also if the job is done with them already [y/N] ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise DovetailError("nothing was done")
    count = queue.close_reservation(given.reservation) if given.forget else queue.release_reservation(given.reservation)
    print(json.dumps({"released": count}) if given.json else f"{count:,} messages are back in {given.queue}")
