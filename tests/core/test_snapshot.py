"""A snapshot is the whole state or it is refused: cut anywhere, flipped anywhere, it never loads as something else."""

from __future__ import annotations

from random import Random

import pytest

from dovetail.core import snapshot
from dovetail.core.column import Column
from dovetail.core.operation import Attributes, Publish, Push, Reserve, ReserveOpen, Stage
from dovetail.errors import CodecError, FormatUnknown
from tests.core.generator import Generator
from tests.core.world import Disagreement, Local, reloaded

DAY = 86_400_000


def full() -> Local:
    """A state with something in every section: groups, chunks, both kinds of time buckets, deduplication, stages, reservations."""
    log = Local(Attributes(grouped=True, dedup_ms=1000), Attributes())
    log(Push((1, 2), Column.of([b"x"] * 4), [0, 50, 9 * DAY, 0], Column.of([b"A", b"A", b"B", b""]), bytes(range(64))))
    log.pop(1)
    log.pop(1, queue=2)
    log(ReserveOpen(2, "r"), Reserve(2, "r", 1, 0, 1), Reserve(2, "r", 1, 1, 1))
    log(Stage(b"s" * 16, Push((1,), Column.of([b"x", b"y"]), [5, 6], Column.of([b"A", b"BB"]), bytes(range(32)))))
    log(Stage(b"s" * 16, Push((1, 2), Column.of([b"z"]))), Publish([], b"o" * 16, 7))
    return log


def dumped(log: Local) -> bytes:
    return b"".join(snapshot.dump(log.state))


def test_a_snapshot_loads_as_what_it_was() -> None:
    log = full()
    assert b"".join(snapshot.dump(reloaded(log.state))) == dumped(log)


def test_a_snapshot_cut_anywhere_is_refused() -> None:
    data = dumped(full())
    for cut in range(len(data)):
        with pytest.raises((CodecError, FormatUnknown)):
            snapshot.load(memoryview(data[:cut]))


@pytest.mark.slow
def test_a_flipped_bit_is_refused_or_changes_nothing() -> None:
    """Bytes that mean nothing may differ; whatever means something is guarded."""
    data = dumped(full())
    loaded_otherwise = []
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            state = snapshot.load(memoryview(changed))
        except (CodecError, FormatUnknown):
            continue
        if b"".join(snapshot.dump(state)) != data:
            loaded_otherwise.append(bit // 8)
    assert loaded_otherwise == []


def test_random_damage_raises_nothing_but_its_own_errors() -> None:
    data, random = dumped(full()), Random(3)
    for _ in range(300):
        changed = bytearray(data)
        at = random.randrange(len(changed))
        changed[at : at + random.choice((1, 4, 30))] = random.randbytes(random.choice((0, 1, 4, 40)))
        try:
            snapshot.load(memoryview(changed))
        except (CodecError, FormatUnknown):
            pass


def test_a_newer_snapshot_is_refused_by_name() -> None:
    data = bytearray(dumped(full()))
    data[8] = 2
    with pytest.raises(FormatUnknown):
        snapshot.load(memoryview(data))


def test_dumping_and_loading_many_states_gives_the_same_bytes_again() -> None:
    for seed in range(6):
        generator = Generator(seed, shared=bool(seed % 2), beyond=seed > 2)
        try:
            generator.run(60)
        except Disagreement:
            pass  # Whether the answers are right is asked in test_agreement.py; here any state will do.
        data = b"".join(snapshot.dump(generator.world.state))
        assert b"".join(snapshot.dump(snapshot.load(memoryview(data)))) == data
