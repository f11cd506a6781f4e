"""The topics of a namespace: how they are made, and what one that is there must not do.

dovetail.<namespace>.log      the log: one partition, so that there is one order; trimmed by deleting a prefix
dovetail.<namespace>.chunks   snapshots in pieces; trimmed the same way
dovetail.<namespace>.blobs    which pieces are which snapshot: compacted, a short record for each name
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...limits import ENTRY_BYTES_MIN

BATCH_OVERHEAD_BYTES = 1024
"""What Kafka puts around a packet and counts as part of it: about a hundred bytes, and there may be more one day."""
MESSAGE_BYTES_MIN = ENTRY_BYTES_MIN + BATCH_OVERHEAD_BYTES
MESSAGE_BYTES = 2 << 20

FOREVER = "-1"
_DELETED = "messages that wait would be deleted"


class Found(NamedTuple):
    """A topic as it is."""

    partitions: int
    copies: int
    settings: Mapping[str, str]
    """The effective ones, whoever has set them."""


def log(namespace: str) -> str:
    return f"dovetail.{namespace}.log"


def chunks(namespace: str) -> str:
    return f"dovetail.{namespace}.chunks"


def blobs(namespace: str) -> str:
    return f"dovetail.{namespace}.blobs"


def names(namespace: str) -> tuple[str, str, str]:
    return log(namespace), chunks(namespace), blobs(namespace)


def wanted(namespace: str, copies: int, synced: bool) -> dict[str, dict[str, str]]:
    """Name → settings of all three, for those that are made here."""
    common = {
        "retention.ms": FOREVER,
        "retention.bytes": FOREVER,
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": str(copies // 2 + 1),
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MESSAGE_BYTES),
    }
    if synced:
        common["flush.messages"] = "1"
    kept, compacted = {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}
    return {log(namespace): common | kept, chunks(namespace): common | kept, blobs(namespace): common | compacted}


def unfit(found: Mapping[str, Found], namespace: str, synced: bool) -> dict[str, list[str]]:
    """Name → what is wrong with it, of those with which something is."""
    told = {name: wrong(one, synced, compacted=name == blobs(namespace)) for name, one in found.items()}
    return {name: lines for name, lines in told.items() if lines}


def wrong(found: Found, synced: bool, *, compacted: bool = False) -> list[str]:
    """What would delete messages that wait, lose what was acknowledged, or take less than must pass. Each line names the setting and what
    it must be."""
    settings, told = found.settings, []

    def must(name: str, value: str, why: str) -> None:
        if settings.get(name) != value:
            told.append(f"{name} is {settings.get(name)}, must be {value}: {why}")

    if found.partitions != 1:
        told.append(f"it has {found.partitions} partitions, must have 1: there is one order")
    must("cleanup.policy", "compact" if compacted else "delete", "only the newest of each name counts" if compacted else _DELETED)
    if not compacted:
        # `delete` alone deletes nothing: these say when it would. It is what allows a prefix to be taken away.
        must("retention.ms", FOREVER, _DELETED)
        must("retention.bytes", FOREVER, _DELETED)
    must("unclean.leader.election.enable", "false", "a leader that lacks what was acknowledged would be elected")
    in_sync = int(settings.get("min.insync.replicas", "1"))
    if found.copies >= 3 and in_sync < 2:
        told.append(f"min.insync.replicas is {in_sync}, must be at least 2: one broker alone would acknowledge")
    if in_sync > found.copies:
        told.append(
            f"min.insync.replicas is {in_sync}, must be at most {found.copies}, for it has so many replicas: nothing can be written"
        )
    must("message.timestamp.type", "LogAppendTime", "the log's time is one of the two by which leases and delays are judged")
    if (most := int(settings.get("max.message.bytes", "0"))) < MESSAGE_BYTES_MIN:
        told.append(f"max.message.bytes is {most}, must be at least {MESSAGE_BYTES_MIN}: the largest legal message would not pass")
    if synced:
        must("flush.messages", "1", "the store says synced=yes, and brokers would acknowledge before they sync")
    return told
