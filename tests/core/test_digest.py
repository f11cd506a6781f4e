"""SEMANTICS §1.6: nodes that replay the same entries have the same digest at each position, and a state that differs shows in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dovetail.core import digest
from dovetail.core.operation import Applied, Done, Fate, Popped, Taken
from dovetail.core.state import State
from tests.core.generator import Generator
from tests.core.world import Entry, reloaded

STEPS = 90


def replay(state: State, entries: list[Entry], position: int = 0) -> Iterator[tuple[int, State]]:
    """(position behind it, state) after each entry."""
    for entry in entries:
        addresses = [position + 16 * (index + 1) for index in range(len(entry.operations))]
        position += 16 * (len(entry.operations) + 1)
        state.apply(position, entry.head, entry.operations, addresses, entry.log_stamp)
        yield position, state


def life(seed: int, **more: bool) -> list[Entry]:
    run = Generator(seed, shared=True, grouped=bool(seed % 2), **more)
    run.run(STEPS)
    return run.entries


@pytest.mark.parametrize("seed", range(12))
def test_a_state_that_went_through_snapshots_has_the_digest_of_one_that_never_did(seed: int) -> None:
    entries = life(seed, silence=seed % 3 == 0, beyond=seed % 3 == 1, renew=seed % 3 == 2)
    wanted = [state.digests.value for _, state in replay(State(), entries)]
    state, position, got = State(), 0, []
    for index, entry in enumerate(entries):
        if index % 7 == 3:
            state = reloaded(state)
        for behind, _ in replay(state, [entry], position):
            position = behind
        got.append(state.digests.value)
    assert got == wanted
    assert len(set(wanted)) == len(wanted), "an entry that leaves no mark could be missed"


def test_a_head_is_agreed_with_as_long_as_its_position_is_known() -> None:
    entries = life(1)
    state = State()
    seen = {position: after.digests.value for position, after in replay(state, entries)}
    for position, value in seen.items():
        head = entries[0].head._replace(applied=position, digest=value)
        assert state.agrees(head) is True
        assert state.agrees(head._replace(digest=value ^ 1)) is False
        assert state.agrees(head._replace(digest=0)) is None
    last = max(seen)
    assert state.agrees(entries[0].head._replace(applied=last + 1, digest=1)) is None
    again = reloaded(state)
    assert again.agrees(entries[0].head._replace(applied=last, digest=seen[last])) is True
    assert again.agrees(entries[0].head._replace(applied=min(seen), digest=seen[min(seen)])) is None


def test_what_is_remembered_of_digests_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "POSITIONS_KEPT", 5)
    state = State()
    positions = [position for position, _ in replay(state, life(2))]
    known = [position for position in positions if state.digests.agrees(position, 1) is not None]
    assert known == positions[-5:]


def test_a_state_that_was_damaged_is_found_out() -> None:
    """One message's delivery number is another's in one of two states: the next answer about it differs, and so does everything after."""
    found = 0
    for seed in range(8):
        entries = life(seed)
        good = {position: state.digests.value for position, state in replay(State(), entries)}
        state = State()
        for index, (position, _) in enumerate(replay(state, entries)):
            if index == STEPS // 2:
                for lane in state.lanes.values():
                    lane.delivery += 1
            if index == len(entries) - 1:
                found += state.agrees(entries[0].head._replace(applied=position, digest=good[position])) is False
    assert found == 8


def test_local_pays_nothing_for_it() -> None:
    run = Generator(3)
    run.run(30)
    assert run.world.state.digests.value == 0


def taken(sequence: int, delivery: int, length: int) -> Taken:
    return Taken(sequence, length, delivery, 0, 0, (1,) * length, 5, 6)


def test_how_runs_lie_in_memory_does_not_show_and_who_has_what_does() -> None:
    def value(*runs: Taken) -> int:
        made = digest.Digests()
        made.note(16, 1, Applied([Popped(1, runs, 9)], []))
        return made.value

    whole = value(taken(10, 100, 7))
    assert whole == value(taken(10, 100, 3), taken(13, 103, 4))
    assert whole != value(taken(10, 100, 6))
    assert value(taken(1, 2, 1), taken(2, 1, 1)) != value(taken(1, 1, 1), taken(2, 2, 1))


def test_what_became_of_an_entry_shows() -> None:
    made = [digest.Digests() for _ in Fate]
    for one, fate in zip(made, Fate, strict=True):
        one.note(16, 1, Applied([Done()], [], fate))
    assert len({one.value for one in made}) == len(Fate)
