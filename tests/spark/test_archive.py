"""Archives on disk without a JVM: published once whatever happens, and replayed once."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dovetail.core.message import Attribute
from dovetail.doors.native.codec import requests
from dovetail.errors import BadRequest
from dovetail.spark import shape
from dovetail.spark.pipelines import find, published, replay
from dovetail.spark.pipelines.archived import archived
from dovetail.spark.pipelines.delta import DeltaPublished
from dovetail.spark.pipelines.published import Published
from tests.spark.house import Node, bodies

COLUMNS = ("sequence", "time", "id", "group", "attributes", "body")


class Killed(Exception):
    pass


def stage(sink: Published | DeltaPublished, batch: int, hours: dict[str, range]) -> None:
    """What Spark leaves in a staging folder: the rows of some hours, under names of its own."""
    for hour, numbers in hours.items():
        folder = sink.staging(batch) / "queue=orders" / f"hour={hour}"
        folder.mkdir(parents=True, exist_ok=True)
        when = datetime.strptime(hour, "%Y-%m-%d-%H").replace(tzinfo=UTC)
        rows = [
            {
                "sequence": n,
                "time": when,
                "id": b"%16d" % n,
                "group": f"g{n % 2}",
                "attributes": [("k", {"type": "Number", "value": b"1"})],
                "body": b"%d" % n,
            }
            for n in numbers
        ]
        pq.write_table(pa.Table.from_pylist(rows, shape.schema(COLUMNS)), folder / f"part-{os.urandom(4).hex()}.snappy.parquet")


def parquet_bodies(target: Path) -> list[int]:
    """What any reader of a folder of Parquet files sees."""
    return sorted(map(int, ds.dataset(target, partitioning="hive").to_table()["body"].to_pylist()))


def delta_bodies(target: Path) -> list[int]:
    from deltalake import DeltaTable

    return sorted(map(int, DeltaTable(target).to_pyarrow_table()["body"].to_pylist()))


@pytest.mark.parametrize("moves", range(5))
def test_a_publish_that_dies_between_two_moves_is_made_whole_by_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    sink = Published(tmp_path, "archive")
    stage(sink, 0, {"2026-05-01-12": range(1, 11)})
    sink.publish(0)
    real, left = published.move, [moves]

    def dying(source: Path, target: Path) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        real(source, target)

    monkeypatch.setattr(published, "move", dying)
    stage(sink, 1, {"2026-05-01-12": range(11, 16), "2026-05-01-13": range(16, 21)})
    try:
        sink.publish(1)
    except Killed:
        pass
    monkeypatch.setattr(published, "move", real)
    seen = parquet_bodies(tmp_path)
    assert len(seen) == len(set(seen)), "not even meanwhile is anything there twice"
    sink = Published(tmp_path, "archive")
    if not sink.done(1):
        # Other tasks, other files: what the first attempt moved is replaced or removed.
        for folder in (sink.staging(1),):
            published.shutil.rmtree(folder, ignore_errors=True)
        stage(sink, 1, {"2026-05-01-12": range(11, 16)})
        stage(sink, 1, {"2026-05-01-13": range(16, 18)})
        stage(sink, 1, {"2026-05-01-13": range(18, 21)})
        sink.publish(1)
    assert parquet_bodies(tmp_path) == list(range(1, 21))
    sink.publish(1)
    assert parquet_bodies(tmp_path) == list(range(1, 21))
    assert not list((tmp_path / "_staged").iterdir())


def test_delta_takes_a_batch_once(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    sink = DeltaPublished(tmp_path, "archive")
    for batch in (0, 0, 1, 1, 0):
        stage(sink, batch, {"2026-05-01-12": range(1 + 10 * batch, 11 + 10 * batch)})
        sink.publish(batch)
    assert delta_bodies(tmp_path) == list(range(1, 21))
    assert sink.done(1) and not sink.done(2)
    assert [rows["sequence"].to_pylist() for rows in archived(tmp_path, "orders")] == [list(range(1, 11)), list(range(11, 21))]


def test_a_replay_pushes_once_however_often_it_is_run(node: Node, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node.declare(queue)
    sink = Published(tmp_path, "archive")
    for batch in range(4):
        stage(sink, batch, {f"2026-05-01-1{batch}": range(1 + 100 * batch, 101 + 100 * batch)})
        sink.publish(batch)
    monkeypatch.setattr(replay, "PUSH_MESSAGES", 30)
    pipeline = find("replay")
    told = {"queue": queue, "archive": str(tmp_path), "source": "orders", "endpoint": node.endpoint}
    said = pipeline.checked({**told, "since": "2026-05-01T11:00", "until": "2026-05-01T13:00", "group": "g1"})
    real, pushes = replay.pushed, [2]

    def dying(*given: object) -> object:
        if not pushes[0]:
            raise Killed
        pushes[0] -= 1
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(replay, "pushed", dying)
    with pytest.raises(Killed):
        replay.replay(said)
    monkeypatch.setattr(replay, "pushed", real)
    assert replay.replay(said) == 100 - 50
    assert replay.replay(said) == 0
    look = node.line.ask(requests.Peek(node.declare(queue), 1000))
    assert list(look.bodies) == [body for body in bodies(101, 301) if int(body) % 2]
    assert replay.replay({**said, "name": "again"}) == 100
    pull = node.line.ask(requests.Pull(node.declare(queue), most=1))
    assert pull.groups[0] == b"g1"
    assert pull.attributes[0] == replay._attributes([("k", {"type": Attribute("Number", b"1").type, "value": b"1"})])


def test_settings_are_checked_before_anything_is_done() -> None:
    with pytest.raises(BadRequest, match="missing: archive, source"):
        find("replay").checked({"queue": "q"})
    with pytest.raises(BadRequest, match="there is no setting 'tapp'"):
        find("archive").checked({"queue": "q", "target": "t", "tapp": "x"})
    with pytest.raises(BadRequest, match="there is no pipeline"):
        find("nothing")
