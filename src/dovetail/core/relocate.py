"""A state for another log: the same messages, whose records lie elsewhere. Pure; what lies where is the caller's to know.

Everything that a state knows about messages it knows by sequence. Addresses are in three places only: the runs of chunks, the notes of
taps, and staged records. What belongs to writers stays behind, for none of them is in the other log.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

from dovetail.core.chunk import GONE, TOMB, Chunk
from dovetail.core.digest import Digests
from dovetail.core.state import State
from dovetail.core.waiting import Waiters
from dovetail.core.writers import Writers


def needed(state: State) -> Iterator[int]:
    """The address of every record that a message, a tap or a stage needs; some more than once."""
    for lane in state.lanes.values():
        for chunk in lane.chunks.values():
            for run, address in enumerate(chunk.addresses):
                if _alive(chunk, run):
                    yield address
        yield from lane.taps.recent.addresses
    for stage in state.stages.by_id.values():
        for record in stage.records:
            yield record.address


def relocate(state: State, where: Callable[[int], int], position: int) -> None:
    """In place. Its notes of taps must all be in memory."""
    for lane in state.lanes.values():
        for chunk in lane.chunks.values():
            # What is gone is asked for by nobody; a run of it stays, so that its neighbours keep their places.
            chunk.addresses = array("Q", [where(old) if _alive(chunk, run) else 0 for run, old in enumerate(chunk.addresses)])
        recent = lane.taps.recent
        recent.addresses = array("Q", map(where, recent.addresses))
        lane.waiters = Waiters()
    for stage in state.stages.by_id.values():
        stage.records = [record._replace(address=where(record.address)) for record in stage.records]
    state.waiting = {}
    state.writers, state.digests = Writers(), Digests()
    state.position, state.trimmed = position, 0


def _alive(chunk: Chunk, run: int) -> bool:
    if chunk.live == len(chunk.states):
        return True
    states = chunk.states[chunk.starts[run] : chunk.run_end(run)]
    return states.count(GONE) + states.count(TOMB) < len(states)
