"""Dead letters are counted, looked at, and redriven: those that were chosen once, the others as if nobody had been there. No JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cli import main
from dovetail.core import codec
from dovetail.core.column import Column
from dovetail.core.message import Attribute, decode_attributes, encode_attributes, id_of
from dovetail.core.operation import Push
from dovetail.doors.native.codec import Kind, requests
from dovetail.errors import BadRequest, NoSuchQueue, Unavailable
from dovetail.spark import shape
from dovetail.spark.line import Line
from dovetail.spark.pipelines import find, redriving
from dovetail.spark.pipelines.dead_letters import Chosen, chosen_of, grouped, kind_of, ranges_of, together
from tests.spark.house import Node

WHEN = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Killed(Exception):
    pass


def told(**values: str) -> dict[str, Attribute]:
    return {name.replace("_", "-"): Attribute("String", value.encode()) for name, value in values.items()}


def rows_of(*attributes: dict[str, Attribute]) -> pa.RecordBatch:
    encoded = pa.array([encode_attributes(one) or None for one in attributes], pa.binary())
    count = len(attributes)
    columns = {
        "sequence": pa.array(range(1, count + 1), pa.int64()),
        "time": pa.array([WHEN + timedelta(minutes=at) for at in range(count)], shape.ARROW["time"]),
        "attributes": shape.attributes_of(encoded),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def test_errors_of_one_kind_are_one_group_whatever_numbers_and_texts_they_name() -> None:
    rows = rows_of(*[told(error=f"ValueError: row {n} has 'x{n}'", shop="a" if n < 3 else "b") for n in range(5)], told(shop="a"))
    assert grouped(rows, ["error"]).to_pylist() == [
        {"error": "ValueError: row # has '…'", "messages": 5, "first": WHEN, "last": WHEN + timedelta(minutes=4), "example": 1},
        {"error": None, "messages": 1, "first": WHEN + timedelta(minutes=5), "last": WHEN + timedelta(minutes=5), "example": 6},
    ]
    assert [(row["error"] is None, row["shop"], row["messages"]) for row in grouped(rows, ["error", "shop"]).to_pylist()] == [
        (False, "a", 3),
        (False, "b", 2),
        (True, "a", 1),
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["", "E: 1", "E: 22", "F"]), st.sampled_from(["", "a", "b"])), min_size=1, max_size=30), st.data()
)
def test_groups_of_pieces_are_the_groups_of_the_whole(made: list[tuple[str, str]], data: st.DataObject) -> None:
    rows = rows_of(*[{name: Attribute("String", text.encode()) for name, text in (("error", e), ("shop", s)) if text} for e, s in made])
    cut = data.draw(st.integers(0, len(made)))
    by = ["error", "shop"]
    pieces = [grouped(one, by) for one in (rows.slice(0, cut), rows.slice(cut)) if one.num_rows]
    counted = Counter((kind_of(e) or None, s or None) for e, s in made)
    for found in (together(pieces, by), grouped(rows, by)):
        assert {(row["error"], row["shop"]): row["messages"] for row in found.to_pylist()} == counted


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({}, [1, 2, 3, 4]),
        ({"error": "ValueError*"}, [1, 2]),
        ({"error": "ValueError: no"}, [1]),
        ({"where": "shop=a"}, [1, 4]),
        ({"where": "shop=*, error=Key*".replace(", ", ",")}, [3]),
        ({"sequences": "1,3-9"}, [1, 3, 4]),
        ({"since": "2026-05-01T12:01", "until": "2026-05-01T12:03"}, [2, 3]),
        ({"through": "2"}, [1, 2]),
        ({"error": "*", "through": "3", "where": "shop=b"}, [2, 3]),
        ({"where": "colour=*"}, []),
    ],
)
def test_what_is_chosen(said: dict[str, str], wanted: list[int]) -> None:
    rows = rows_of(
        told(error="ValueError: no", shop="a"),
        told(error="ValueError: yes", shop="b"),
        told(error="KeyError: 'x'", shop="b"),
        told(shop="a"),
    )
    chosen = chosen_of(find("dead-letters").checked({"queue": "q", **said}))
    assert rows.filter(chosen.mask(rows))["sequence"].to_pylist() == wanted


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"where": "shop"}, "where: name=value"),
        ({"sequences": "5-"}, "sequences: like 5,7,10-20"),
        ({"since": "soon"}, "'soon' is no time"),
        ({"through": "0"}, "through: a whole number"),
        ({"queue": "a,b"}, "one queue of dead letters"),
        ({"by": ","}, "by: at least one attribute"),
        ({"show": "some"}, "show: a whole number"),
    ],
)
def test_what_cannot_be_is_refused(node: Node, said: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        find("dead-letters").run(find("dead-letters").checked({"queue": "q", "endpoint": node.endpoint, **said}), print)


def test_ranges_of_sequences() -> None:
    assert ranges_of("5, 7,10-12") == [range(5, 6), range(7, 8), range(10, 13)]
    assert Chosen().sequences == ()


# Over a node


def fill(node: Node, queue: str, count: int, groups: bool = False) -> None:
    """Dead letters of two shops: odd ones failed with a ValueError in `QUEUE-a`, even ones with a KeyError in `QUEUE-b`."""
    known = node.declare(queue)
    for name in ("a", "b", "c"):
        node.declare(f"{queue}-{name}")
    texts = [
        encode_attributes(
            told(error=f"{'ValueError' if n % 2 else 'KeyError'}: {n}", error_queue=f"{queue}-{'a' if n % 2 else 'b'}", trace=str(n))
        )
        for n in range(1, count + 1)
    ]
    names = Column.of([b"g%d" % (n % 3) for n in range(count)]) if groups else None
    push = Push((known,), Column.of([b"%d" % n for n in range(1, count + 1)]), groups=names, attributes=Column.of(texts))
    node.line.ask(requests.Push(codec.encode_push(push)))


def run(node: Node, queue: str, **said: str) -> list[str]:
    lines: list[str] = []
    pipeline = find("dead-letters")
    pipeline.run(pipeline.checked({"queue": queue, "endpoint": node.endpoint, **said}), lines.append)
    return lines


def untouched(node: Node, queue: str, count: int) -> bool:
    look = node.line.ask(requests.Peek(node.declare(queue), 10_000))
    return list(look.sequences) == list(range(1, count + 1)) and not any(look.receives) and not any(bytes(look.states))


def test_a_look_counts_shows_and_takes_nothing(node: Node, queue: str) -> None:
    fill(node, queue, 11)
    lines = run(node, queue, show="1", error="Value*")
    assert lines[0].strip().startswith("6  20") and lines[0].endswith("  ValueError: #  (as 1)")
    assert "visible" in lines[1] and "'1'" in lines[1] and "trace=1" in lines[1]
    assert lines[2:] == [f"would go to {queue}-a: 6", "nothing was moved; --through 11 --redrive moves these and none that comes later"]
    assert run(node, queue, error="nothing like it") == ["there are none"]
    assert untouched(node, queue, 11)


def test_chosen_ones_go_where_they_failed_and_the_others_are_as_if_nobody_had_been_there(node: Node, queue: str) -> None:
    fill(node, queue, 50, groups=True)
    salt = int.from_bytes(node.line.welcome.salt, "big")
    lines = run(node, queue, error="ValueError*", through="40", redrive="true")
    assert lines[-1] == "20 of 20 were moved"
    assert node.waiting(f"{queue}-a") == [b"%d" % n for n in range(1, 41, 2)]
    left = node.line.ask(requests.Peek(node.declare(queue), 100))
    assert [int(body) for body in left.bodies] == [n for n in range(1, 51) if n % 2 == 0 or n > 40]
    assert not any(left.receives) and not any(bytes(left.states))
    first = node.line.ask(requests.Peek(node.declare(f"{queue}-a"), 1))
    assert decode_attributes(bytes(first.attributes[0])) == told(trace="1"), "as it was before it failed"
    assert (bytes(first.groups[0]), bytes(first.ids)) == (b"g0", id_of(node.declare(queue), 1, salt))
    assert run(node, queue, error="ValueError*", through="40", redrive="true") == ["there are none"]
    assert run(node, queue, to=f"{queue}-c", redrive="true")[-1] == "30 of 30 were moved"
    assert (len(node.waiting(f"{queue}-c")), node.waiting(queue)) == (30, [])


def test_who_does_not_say_where_it_failed_needs_a_queue_to_go_to(node: Node, queue: str) -> None:
    node.push(queue, [b"a", b"b"])
    assert "go nowhere, they do not say where they failed (--to): 2" in run(node, queue)[1]
    with pytest.raises(BadRequest, match="2 of the chosen messages do not say which queue they failed in"):
        run(node, queue, redrive="true")
    with pytest.raises(NoSuchQueue):
        run(node, queue, redrive="true", to="not-there")
    assert untouched(node, queue, 2)


def test_a_message_that_somebody_has_in_hand_is_left_to_them(node: Node, queue: str) -> None:
    fill(node, queue, 10)
    pull = node.line.ask(requests.Pull(node.declare(queue), most=3))
    assert run(node, queue, redrive="true")[-1] == "7 of 10 were moved; the others are with somebody else"
    items = [redriving.item_of(one, at) for one in pull.runs for at in range(one.length)]
    assert bytes(node.line.ask(requests.Settle(Kind.COMPLETE, node.declare(queue), items)).done) == b"\x01" * 3
    assert sorted(map(int, node.waiting(f"{queue}-a") + node.waiting(f"{queue}-b"))) == list(range(4, 11))


def moves(patch: pytest.MonkeyPatch, act: Callable[[Line, Callable[[], Any]], Any]) -> None:
    """`act` in place of every move."""
    real = Line.ask
    patch.setattr(
        Line,
        "ask",
        lambda line, request: act(line, lambda: real(line, request)) if isinstance(request, requests.CompletePush) else real(line, request),
    )


def everywhere(node: Node, queue: str) -> list[int]:
    return sorted(int(body) for name in (queue, f"{queue}-a", f"{queue}-b") for body in node.waiting(name))


@pytest.mark.parametrize("behind", [False, True], ids=["before a move", "behind a move"])
def test_a_redrive_that_dies_has_moved_a_message_or_has_not_and_the_next_goes_on(
    node: Node, queue: str, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    fill(node, queue, 60)
    monkeypatch.setattr(redriving, "PULL_MESSAGES", 10)
    # What dies gives nothing back.
    monkeypatch.setattr(redriving.Redrive, "_give_back", lambda self, held: None)
    for number in range(3):
        left = [number]

        def dies(line: Line, go: Callable[[], Any], left: list[int] = left) -> Any:
            if not left[0]:
                if behind:
                    go()
                raise Killed
            left[0] -= 1
            return go()

        reclaim(node, queue)
        with monkeypatch.context() as patch:
            moves(patch, dies)
            with pytest.raises(Killed):
                run(node, queue, error="ValueError*", redrive="true")
        assert everywhere(node, queue) == list(range(1, 61))
    reclaim(node, queue)
    run(node, queue, error="ValueError*", redrive="true")
    assert node.waiting(f"{queue}-b") == [] and sorted(map(int, node.waiting(f"{queue}-a"))) == list(range(1, 61, 2))
    assert everywhere(node, queue) == list(range(1, 61))


def reclaim(node: Node, queue: str) -> None:
    """What the end of the leases would do, ten minutes later."""
    known = node.declare(queue)
    look = node.line.ask(requests.Peek(known, 1000))
    leased = [sequence for sequence, state in zip(look.sequences, bytes(look.states), strict=True) if state == 2]
    if leased:
        node.line.ask(requests.BySequence(Kind.RECLAIM, known, leased))


@pytest.mark.parametrize("answered", [False, True], ids=["the request is lost", "the answer is lost"])
def test_a_connection_that_breaks_within_a_move_neither_loses_nor_doubles(
    node: Node, queue: str, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    fill(node, queue, 60)
    monkeypatch.setattr(redriving, "PULL_MESSAGES", 10)
    cuts = [1, 0, 1, 0, 1, 1, 0]

    def breaks(line: Line, go: Callable[[], Any]) -> Any:
        if cuts and cuts.pop():
            if answered:
                go()
            line.close()
            raise Unavailable("the connection was cut")
        return go()

    moves(monkeypatch, breaks)
    assert run(node, queue, redrive="true")[-1] == "60 of 60 were moved"
    assert node.waiting(queue) == [] and everywhere(node, queue) == list(range(1, 61))


def test_twin_who_pushes_first_and_removes_then_doubles_what_somebody_takes_in_between(
    node: Node, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, queue, 1)
    known = node.declare(queue)

    def apart(self: redriving.Redrive, target: str, some: list[redriving.Taken]) -> None:
        node.line.ask(requests.Settle(Kind.RELEASE, known, [one.item for one in some]))
        node.line.ask(requests.Push(codec.encode_push(Push((node.declare(target),), Column.of([one.body for one in some])))))
        assert node.line.ask(requests.Pull(known, most=1)).bodies, "somebody else is quicker"
        node.line.ask(requests.BySequence(Kind.CANCEL, known, [one.sequence for one in some]))

    monkeypatch.setattr(redriving.Redrive, "_move", apart)
    run(node, queue, redrive="true")
    assert everywhere(node, queue) == [1, 1]


def test_a_redrive_is_cut_into_operations_of_a_good_size(node: Node, queue: str) -> None:
    node.declare(f"{queue}-to")
    node.push(queue, [b"x" * 150_000 for _ in range(6)] + [b"y" * (1 << 20)])
    assert run(node, queue, to=f"{queue}-to", redrive="true")[-1] == "7 of 7 were moved"
    assert [len(body) for body in node.waiting(f"{queue}-to")] == [150_000] * 6 + [1 << 20]


def test_the_command_looks_plans_and_redrives(node: Node, queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(node, queue, 4)
    command = ["pipeline", "run", "dead-letters", "--endpoint", node.endpoint, "--queue", queue, "--where", "trace=3"]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"would go to {queue}-a: 1"
    assert main([*command, "--through", "4", "--redrive"]) == 0
    assert node.waiting(f"{queue}-a") == [b"3"]
