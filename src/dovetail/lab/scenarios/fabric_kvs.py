"""The key-value store of the message-fabric thesis (its chapter 2): messages in and out of memory as fast as a connection carries them.

A message is pushed, received and completed; memcached sets a key and deletes it, and gives no body back. Both sides have as many
connections, and as many messages under way on each. Every queue has a connection of its own, as in the thesis. What is compared:

    frames      ours, raw: frames of a hundred messages (of at most 256 KiB), four frames under way
    single      ours, raw: frames of one message, a hundred under way
    client      ours, through the client that people use: 400 tasks on a connection, each with one message at a time, batched by the client
    hundreds    the same with 16 tasks that send, receive and complete a hundred in one call, as docs/client.md says to where one has many
    thousands   8 tasks with a thousand (of at most 1 MiB) in one call

Beside each, memcached has as many pairs under way. The bars of the client hold the best of its two batching ways, and `batching` names it.
`client` has no bar: three awaits cost asyncio itself 2.8 µs a message, in which memcached does one and a half, so that no work of ours
could bring it there (docs/decisions/0009).

The best memcached client there is does nothing but count bytes; ours gives the program every body that it received, and numbers its sends.

Debian's memcached runs with its own settings, and reads at most 20 requests of a connection before it turns to another (-R 20). Where it
may read 2,000 it is faster on few connections that are full; that is told as `memcached_r2000` at 0.1 KB. Its client counts bytes.

The thesis tells (dual-core machines, 1 Gbit/s): 91,000 transactions a second at 0.1 KB over one connection and 180,000 over two, 200,000
at 0.4 KB with two queues, 100,000 at 1 KB; that this is twice memcached at 0.4 KB and 1.4 times at 1 KB; and 24,000 for a store with
locks and metadata, over 100 connections. With DOVETAIL_LAB_PICTURES=DIR its bars are drawn beside ours into DIR/fabric-kvs-*.svg.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from .. import memcacheload
from ..clientload import ClientLoad
from ..drivers import memcached
from ..drivers.memcached import Memcached
from ..drivers.native import NativeNode
from ..nativeload import CYCLE, Load
from ..picture import bars
from ..rounds import ROUNDS, Notes, in_turns
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

PICTURES_ENVIRONMENT = "DOVETAIL_LAB_PICTURES"
SIZES = (100, 400, 1_000, 2_000, 4_000, 10_000, 20_000)
QUEUES = (1, 2, 4, 8)
SPREAD = (100, 400)
"""The sizes that are measured over all numbers of queues; the others with one."""
BATCH, UNDER_WAY = 100, 4
FRAME_BYTES = 256 * 1024
SINGLE_UNDER_WAY = 100
CALL_BYTES = 1024 * 1024
FRAMES, SINGLE, CLIENT, HUNDREDS, THOUSANDS = "frames", "single", "client", "client_in_hundreds", "client_in_thousands"
BATCHING = (HUNDREDS, THOUSANDS)
EAGER = ("-R", "2000")
PAPER = {
    "fabric": {"100_bytes_1_queues": 91_000, "100_bytes_2_queues": 180_000, "400_bytes_2_queues": 200_000, "1000_bytes_1_queues": 100_000},
    "memcached": {"400_bytes": 100_000, "1000_bytes": 71_000},
    "locks and metadata, 100 connections": {"100_bytes": 24_000},
}


class Way(NamedTuple):
    """`under_way` calls or frames at a time, of `batch` messages each and of at most so many bytes; on every connection."""

    batch: int
    under_way: int
    bytes_max: int
    messages: int
    """About a second of it at 0.1 KB."""

    def of(self, size: int) -> int:
        return max(1, min(self.batch, self.bytes_max // size))


WAYS = {
    FRAMES: Way(BATCH, UNDER_WAY, FRAME_BYTES, 240_000),
    SINGLE: Way(1, SINGLE_UNDER_WAY, FRAME_BYTES, 40_000),
    CLIENT: Way(1, BATCH * UNDER_WAY, FRAME_BYTES, 60_000),
    HUNDREDS: Way(100, 16, FRAME_BYTES, 320_000),
    THOUSANDS: Way(1_000, 8, CALL_BYTES, 480_000),
}
RAW = (FRAMES, SINGLE)


class Cell(NamedTuple):
    size: int
    queues: int

    @property
    def name(self) -> str:
        return f"{self.size}_bytes_{self.queues}_queues"

    def messages(self, lab: Lab, way: str) -> int:
        """Larger messages are fewer; in every way each place has some turns."""
        full = WAYS[way].messages
        least = 2 * self.queues * WAYS[way].of(self.size) * WAYS[way].under_way
        return max(least, lab.size(full, full // 20) * 100 // max(100, self.size // 4))


def cells(lab: Lab) -> Iterator[Cell]:
    for size in SIZES:
        for queues in QUEUES if size in SPREAD else QUEUES[:1]:
            if not lab.quick or queues <= 2:
                yield Cell(size, queues)


async def run(lab: Lab) -> Figures:
    async with AsyncExitStack() as stack:
        node = NativeNode(None)
        await node.start()
        stack.push_async_callback(node.stop)
        peers: dict[str, Memcached] = {}
        if (peer := await memcached.beside(lab)) is not None:
            stack.push_async_callback(peer.stop)
            eager = Memcached(lab.folder / "eager", *EAGER)
            await eager.start()
            stack.push_async_callback(eager.stop)
            peers = {"memcached": peer, "memcached_r2000": eager}

        async def turn(notes: Notes) -> None:
            for cell in cells(lab):
                await _ours(lab, notes, node, cell)
                for name, one in peers.items():
                    if name == "memcached" or cell.size == SIZES[0]:
                        await _theirs(lab, notes, name, one, cell)

        notes = await in_turns(lab, "every size and number of queues", turn)
    figures = _told(lab, notes)
    if folder := os.environ.get(PICTURES_ENVIRONMENT):
        _draw(Path(folder), notes)
    return figures


async def _ours(lab: Lab, notes: Notes, node: NativeNode, cell: Cell) -> None:
    for name, way in WAYS.items():
        messages, batch, queue = cell.messages(lab, name), way.of(cell.size), f"{name}-{cell.size}-{{}}"
        load: Load | ClientLoad
        if name in RAW:
            load = Load(node.port, CYCLE, messages, cell.queues, batch, way.under_way, cell.size, queue, node.pid)
        else:
            load = ClientLoad(node.port, messages, way.under_way, batch, cell.size, cell.queues, queue, node.pid)
        notes.note(f"{name} {cell.name}", await load.played())


async def _theirs(lab: Lab, notes: Notes, name: str, peer: Memcached, cell: Cell) -> None:
    for beside, way in WAYS.items():
        if beside == CLIENT:
            continue  # As many pairs as beside `frames`, in units as large.
        pairs, messages = way.of(cell.size), cell.messages(lab, FRAMES if beside == SINGLE else beside)
        made = await memcacheload.result(peer.port, cell.queues, messages, cell.size, pairs, way.under_way, peer.pid)
        notes.note(f"{name} {beside} {cell.name}", made)


def _told(lab: Lab, notes: Notes) -> Figures:
    figures: Figures = {"rounds": lab.size(ROUNDS, 1), "paper": PAPER}
    figures["ways"] = {name: {"batch": way.batch, "under_way": way.under_way} for name, way in WAYS.items()}
    for cell in cells(lab):
        for way in WAYS:
            figures.setdefault(way, {})[cell.name] = {
                **(notes.medians(f"{way} {cell.name}") or {}),
                "to_memcached": notes.ratio(f"{way} {cell.name}", f"memcached {FRAMES if way == CLIENT else way} {cell.name}"),
            }
        ratios = [(figures[way][cell.name]["to_memcached"], way) for way in BATCHING]
        best = max(((ratio, way) for ratio, way in ratios if ratio is not None), default=(None, ""))
        figures.setdefault("batching", {})[cell.name] = {"to_memcached": best[0], "way": best[1]}
    for name in ("memcached", "memcached_r2000"):
        for way in WAYS:
            for cell in cells(lab):
                if (made := notes.medians(f"{name} {way} {cell.name}")) is not None:
                    figures.setdefault(name, {}).setdefault(way, {})[cell.name] = made
    return figures


def _draw(folder: Path, notes: Notes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ours, own, many, peer, paper, papers = (
        "Dovetail, frames of 100",
        "Dovetail, its client, one message a task",
        "Dovetail, its client, thousands",
        "memcached",
        "the thesis",
        "memcached in the thesis",
    )

    def group(cell: Cell, said: float | None, said_of_memcached: float | None = None) -> dict[str, float]:
        named = {
            ours: f"{FRAMES} {cell.name}",
            own: f"{CLIENT} {cell.name}",
            many: f"{THOUSANDS} {cell.name}",
            peer: f"memcached {FRAMES} {cell.name}",
        }
        drawn = {name: made["per_s"] for name, at in named.items() if (made := notes.medians(at)) is not None}
        return drawn | ({paper: said} if said else {}) | ({papers: said_of_memcached} if said_of_memcached else {})

    sizes = {
        "0.1 KB": group(Cell(100, 1), 91_000),
        "0.4 KB, 2 queues": group(Cell(400, 2), 200_000, 100_000),
        "1 KB": group(Cell(1_000, 1), 100_000, 71_000),
        "2 KB": group(Cell(2_000, 1), None),
        "4 KB": group(Cell(4_000, 1), None),
    }
    queues = {f"{count} queues": group(Cell(100, count), {1: 91_000, 2: 180_000}.get(count)) for count in QUEUES}
    for name, groups, across in (("sizes", sizes, "size of a message"), ("queues", queues, "queues of 0.1 KB, each with its connection")):
        title = "In and out of memory: messages a second, beside memcached and the thesis"
        drawn = bars(title, groups, across=across, up="messages a second", said={paper, papers})
        (folder / f"fabric-kvs-{name}.svg").write_text(drawn, encoding="utf-8")


def _bars() -> list[Bar]:
    made = [Bar("0.1 KB on one connection, in frames, messages a second", f"{FRAMES}.{Cell(100, 1).name}.per_s", least=91_000)]
    for way, words in (("batching", "through the client, in its best batching way"), (FRAMES, "in frames of a hundred")):
        for size, least in ((100, 1.6), (400, 1.6), (1_000, 1.2)):
            cell = Cell(size, 1)
            made.append(Bar(f"{size / 1000:g} KB {words}, times memcached", f"{way}.{cell.name}.to_memcached", least=least))
    return made


SCENARIO = Scenario("fabric-kvs", SCENARIOS["fabric-kvs"], _bars(), run)
