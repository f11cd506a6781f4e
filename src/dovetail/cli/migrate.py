"""Move everything from one store to another: a data folder to a log that nodes share, or back, or anywhere else. Ids, order, leases and
their receipts, receive counts, delays, groups, deduplication windows, producers, stages, reservations, taps and facts stay as they are.

A node may go on with the folder that it is moved from: what lives is copied beside it, and it is ended when that node is stopped. Nodes
that share a log are stopped by the end of the migration, each where it meets it. Killed at any moment, run it again: nothing is lost and
nothing is there twice. The target must be one that nobody has used."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from ..errors import BadRequest
from ..node import migrate
from ..settings import Settings, Shared

EXAMPLES = """\
examples:
  dovetail migrate local:./data nats://nats-1:4222,nats-2:4222,nats-3:4222/shop
  dovetail migrate nats://nats-1:4222/shop local:./data
  dovetail migrate local:./data kafka://kafka-1:9092,kafka-2:9092,kafka-3:9092/shop
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FROM", help="the store that is left: local:DIR, nats:// or kafka://…/NAMESPACE")
    parser.add_argument("target", metavar="TO", help="the store that is filled: a new folder, or a namespace that has no log yet")
    parser.add_argument("--shared-cache", metavar="FOLDER", default="", help="where shared logs are read into; without it the temp folder")


def run(given: argparse.Namespace) -> int:
    if given.source == given.target:
        raise BadRequest("FROM and TO are the same store")
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    made = asyncio.run(migrate(given.source, given.target, say, settings=Settings(shared=Shared(cache=given.shared_cache))))
    done = "was moved before" if made.before else "moved"
    print(f"{done}: {made.messages:,} messages in {made.queues:,} queues; start nodes on the new store")
    return 0
