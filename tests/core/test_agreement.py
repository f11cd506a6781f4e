"""The core and the oracle are given the same random entries and must answer alike, whatever is mixed: groups, delays, leases,
deduplication, dead letters, numbers, taps, waiters, stages, reservations, snapshots.

Every run is named by its seed; a failure prints the few entries that are needed for it.
"""

from __future__ import annotations

import pytest

from dovetail.core import settling
from dovetail.core.chunk import GONE, HELD, LEASED, MASK, READY, SHIFT, TOMB, Chunk
from dovetail.core.lane import Lane
from dovetail.core.operation import Attributes
from tests.core.generator import Generator
from tests.core.world import Disagreement, Local, disagreement, shrunk

SEEDS = range(24)
STEPS = 110


def agree(generator: Generator) -> None:
    try:
        generator.run(STEPS)
    except Disagreement:
        entries = shrunk(generator.entries)
        lines = "\n".join(f"  {entry}" for entry in entries)
        pytest.fail(f"after these entries\n{lines}\nthey disagree: {disagreement(entries)}", pytrace=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plain_queue_answers_as_the_oracle_does(seed: int) -> None:
    agree(Generator(seed, grouped=False))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_queue_with_groups_answers_as_the_oracle_does(seed: int) -> None:
    agree(Generator(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shared_log_with_waiters_answers_as_the_oracle_does(seed: int) -> None:
    agree(Generator(seed, shared=True, grouped=bool(seed % 2)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shared_log_whose_writers_fall_silent_answers_as_the_oracle_does(seed: int) -> None:
    agree(Generator(seed, shared=True, silence=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shared_log_whose_writers_give_up_and_open_anew_answers_as_the_oracle_does(seed: int) -> None:
    agree(Generator(seed, shared=True, grouped=bool(seed % 2), silence=seed % 3 == 0, renew=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shared_log_whose_receivers_take_once_and_withdraw_answers_as_the_oracle_does(seed: int) -> None:
    agree(Generator(seed, shared=True, grouped=bool(seed % 2), silence=seed % 3 == 0, renew=seed % 4 == 0, leaving=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_with_stages_and_reservations_answers_as_the_oracle_does(seed: int) -> None:
    agree(Generator(seed, grouped=bool(seed % 2), beyond=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shared_log_with_stages_and_reservations_answers_as_the_oracle_does(seed: int) -> None:
    agree(Generator(seed, shared=True, grouped=bool(seed % 2), silence=seed % 3 == 0, beyond=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_one_of_several_logs_answers_as_the_oracle_does(seed: int) -> None:
    agree(Generator(seed, shared=bool(seed % 2), grouped=seed % 3 != 0, silence=seed % 5 == 0, beyond=seed % 4 == 0, apart=True))


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(20094, id="a-retime-ends-the-time-of-a-receiver"),
        pytest.param(20276, id="a-receiver-gets-dead-letters-in-two-hand-outs"),
        pytest.param(20296, id="how-many-a-lane-still-holds"),
        pytest.param(20334, id="what-a-complete-and-push-sets-off"),
        pytest.param(20354, id="what-several-completes-set-off"),
    ],
)
def test_lanes_serve_in_the_order_in_which_somebody_began_to_wait_there(seed: int) -> None:
    """Long lives in which the order between lanes shows: what one gives to its receivers makes dead letters for another."""
    run = Generator(seed, shared=True, grouped=False)
    run.run(150)
    assert len(run.entries) > 150


def test_a_new_tap_reads_all_of_a_run_that_another_one_needs_the_end_of() -> None:
    Generator(20347, shared=True).run(150)


def _without_the_fence(lane: Lane, sequence: int, delivery: int) -> tuple[Chunk, int] | None:
    """The message, whoever holds it: what the core would do if it did not look at the delivery number."""
    chunk, at = lane.chunks.get(sequence >> SHIFT), sequence & MASK
    if chunk is None or at >= len(chunk.states) or chunk.states[at] in (GONE, TOMB):
        return None
    return (chunk, at) if chunk.states[at] in (LEASED, READY, HELD) else None


def test_with_the_fence_a_stale_receipt_settles_nothing() -> None:
    log = Local(Attributes(lease_ms=10))
    log.push(b"x")
    [first] = log.pop()
    [second] = log.pop(after=10)
    assert log.complete(first) == [False]
    assert log.complete(second) == [True]


def test_without_the_fence_a_stale_receipt_settles_anothers_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_delivered", _without_the_fence)
    log = Local(Attributes(lease_ms=10))
    log.push(b"x")
    [first] = log.pop()
    log.pop(after=10)
    with pytest.raises(Disagreement, match="Complete"):
        log.complete(first)
    with pytest.raises(Disagreement):
        for seed in SEEDS:
            Generator(seed, grouped=False).run(STEPS)


def test_without_the_place_in_line_a_message_that_lapsed_is_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin of the order: a lane that forgets how low the lowest is gives a later message first, and the comparison sees it."""

    def make_ready(self: Lane, chunk: Chunk, at: int) -> None:
        chunk.states[at] = READY
        chunk.ready += 1
        chunk.low = max(chunk.low, at)

    monkeypatch.setattr(Lane, "make_ready", make_ready)
    log = Local(Attributes(lease_ms=10))
    log.push(b"a", b"b", b"c")
    log.pop(1)
    with pytest.raises((Disagreement, AssertionError)):
        for _ in range(4):
            log.pop(1, after=10)
