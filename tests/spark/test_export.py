"""`dovetail export`: a tap, or what waits, to Parquet without Spark. Exact wherever it dies. No JVM, no pyspark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dovetail.cli import main
from dovetail.core.message import Attribute
from dovetail.doors.native.codec import Kind, requests
from dovetail.errors import DovetailError
from dovetail.spark import shape
from dovetail.spark.pipelines import export as exporting
from dovetail.spark.pipelines import published, replay
from dovetail.spark.pipelines.archived import archived
from dovetail.spark.pipelines.export import PIPELINE, Files
from tests.spark.house import Node, bodies


class Killed(BaseException):
    pass


def said(node: Node, queue: str, target: Path, **more: str) -> dict[str, str]:
    return PIPELINE.checked({"endpoint": node.endpoint, "queue": queue, "target": str(target), **more})


def exported(told: dict[str, str]) -> list[str]:
    lines: list[str] = []
    PIPELINE.run(told, lines.append)
    return lines


def found(target: Path) -> list[int]:
    """What any reader of a folder of Parquet files sees."""
    rows = ds.dataset(target, partitioning="hive").to_table()
    return sorted(map(int, rows["body"].to_pylist())) if rows.num_rows else []


def test_a_tap_is_exported_in_batches_and_released(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 2500), attributes={"k": Attribute("Number", b"7")}, groups=[b"g%d" % (n % 3) for n in range(2500)])
    told = said(node, queue, tmp_path, rows="1000")
    lines = exported(told)
    assert [line.split("/s, ")[1] for line in lines[:-1]] == ["1,500 wait", "500 wait", "0 wait"]
    assert lines[-1] == "2,500 messages were exported"
    assert found(tmp_path) == list(range(2500))
    assert node.tap(queue, "export").next == 2501
    assert exported(told) == ["0 messages were exported"]
    node.push(queue, bodies(2500, 2600))
    assert exported(told)[-1] == "100 messages were exported"
    assert found(tmp_path) == list(range(2600))
    rows = pa.concat_tables(archived(tmp_path, queue, columns=shape.ARROW.keys() - {"queue", "receives", "state"}))
    assert rows["sequence"].to_pylist() == list(range(1, 2601))
    assert rows["attributes"][0].as_py() == [("k", {"type": "Number", "value": b"7"})]
    assert rows["group"][1].as_py() == "g1" and len(set(rows["id"].to_pylist())) == 2600
    (one, *_) = tmp_path.glob("queue=*/hour=*/*.parquet")
    assert pq.read_schema(one).field("time").type == pa.timestamp("us", tz="UTC")


def dying(real: Callable[..., Any], after: int) -> Callable[..., Any]:
    left = [after]

    def one(*given: Any, **more: Any) -> Any:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return real(*given, **more)

    return one


POINTS: dict[str, tuple[Any, str]] = {
    "reading": (exporting.fetch, "read"),
    "writing": (exporting.Files, "add"),
    "moving": (published, "move"),
    "releasing": (exporting.Survey, "release"),
}


@pytest.mark.parametrize("point", POINTS)
def test_an_export_that_dies_anywhere_neither_loses_nor_doubles(
    node: Node, queue: str, tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{queue}-{letter}" for letter in "ab"]
    for name in names:
        node.push(name, bodies(0, 400))
    told = said(node, f"{queue}-*", tmp_path, rows="300")
    place, name = POINTS[point]
    real, died, after = getattr(place, name), 0, 0
    # One step further each time, until nothing is left to die of; more is pushed meanwhile.
    pushed = 400
    while True:
        monkeypatch.setattr(place, name, dying(real, after))
        try:
            exported(told)
            break
        except Killed:
            died, after = died + 1, after + 1
            seen = found_of(tmp_path)
            assert len(seen) == len(set(seen)), "not even meanwhile is anything there twice"
            if died < 4:
                for one in names:
                    node.push(one, bodies(pushed, pushed + 50))
                pushed += 50
    monkeypatch.setattr(place, name, real)
    exported(told)
    assert died >= 2
    assert sorted(found_of(tmp_path)) == sorted((one, number) for one in names for number in range(pushed))
    assert not list((tmp_path / "_staged").iterdir())


def found_of(target: Path) -> list[tuple[str, int]]:
    files = [str(file) for file in target.glob("queue=*/hour=*/*.parquet")]
    if not files:
        return []
    rows = ds.dataset(files, partitioning=ds.partitioning(flavor="hive"), partition_base_dir=str(target)).to_table()
    return [(queue, int(body)) for queue, body in zip(rows["queue"].to_pylist(), rows["body"].to_pylist(), strict=True)]


def test_a_batch_that_was_begun_keeps_its_end_whatever_is_pushed_meanwhile(
    node: Node, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.push(queue, bodies(0, 100))
    told = said(node, queue, tmp_path)
    monkeypatch.setattr(exporting.Export, "_batch", dying(exporting.Export._batch, 0))
    with pytest.raises(Killed):
        exported(told)
    monkeypatch.undo()
    (manifest,) = (tmp_path / "_batches" / "export").glob("*.json")
    assert json.loads(manifest.read_text())["told"]["end"]["queues"][queue]["lanes"]["0"]["next"] == 101
    node.push(queue, bodies(100, 150))
    lines = exported(told)
    assert [line.split(":")[1].split(",")[0].strip() for line in lines[:-1]] == ["50 rows"], "batch 0 kept its end"
    assert lines[-1] == "150 messages were exported"
    assert sorted(pq.read_table(file).num_rows for file in tmp_path.glob("queue=*/hour=*/*.parquet")) == [50, 100]


def test_what_waits_is_exported_and_stays_where_it_is(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 300))
    told = said(node, queue, tmp_path, waiting="true")
    assert exported(told)[-1] == "300 messages were exported"
    rows = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert set(rows["state"].to_pylist()) == {"visible"} and set(rows["receives"].to_pylist()) == {0}
    assert not node.line.ask(requests.About(Kind.TAP_LIST, node.declare(queue))).taps
    counted = node.line.ask(requests.About(Kind.COUNTS, node.declare(queue)))
    assert (counted.visible, counted.leased) == (300, 0)
    node.push(queue, bodies(300, 310))
    assert exported(told)[-1] == "10 messages were exported"
    assert found(tmp_path) == list(range(310))


def test_rows_whose_times_fall_lie_in_files_of_their_own(tmp_path: Path) -> None:
    """Dead letters keep the times at which they were pushed first."""
    files = Files(tmp_path, "q/1")
    for hour in (12, 11, 12):
        row = {"queue": "q/1", "time": datetime(2026, 5, 1, hour, 30, tzinfo=UTC)}
        files.add(pa.RecordBatch.from_pylist([row], shape.schema(["queue", "time"])))
    files.close()
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.parquet")) == [
        "queue=q%2F1/hour=2026-05-01-11/part-00001.parquet",
        "queue=q%2F1/hour=2026-05-01-12/part-00000.parquet",
        "queue=q%2F1/hour=2026-05-01-12/part-00002.parquet",
    ]


def test_a_gap_is_named_and_gone_over_only_if_told_to(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 100))
    exported(said(node, queue, tmp_path))
    node.push(queue, bodies(100, 200))
    node.advance(queue, "export", 151)
    with pytest.raises(DovetailError, match=f"The messages 101 to 150 of '{queue}' are gone"):
        exported(said(node, queue, tmp_path))
    assert exported(said(node, queue, tmp_path, gaps="true"))[-1] == "50 messages were exported"
    assert found(tmp_path) == [*range(100), *range(150, 200)]


def test_a_folder_belongs_to_one_nodes_queues_and_to_one_export_at_a_time(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 10))
    told = said(node, queue, tmp_path)
    exported(told)
    with (
        published.held(published.Published(tmp_path, "export").lock),
        pytest.raises(DovetailError, match="another export writes here"),
    ):
        exported(told)
    stranger = Node().start()
    try:
        stranger.push(queue, bodies(0, 10))
        with pytest.raises(DovetailError, match="another node's queues"):
            exported({**told, "endpoint": stranger.endpoint})
    finally:
        stranger.stop()


def test_an_export_is_replayed_like_an_archive(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 100))
    exported(said(node, queue, tmp_path, rows="30"))
    node.declare(f"{queue}-again")
    told = {"endpoint": node.endpoint, "queue": f"{queue}-again", "archive": str(tmp_path), "source": queue, "since": "2020-01-01"}
    assert replay.replay(replay.PIPELINE.checked(told)) == 100
    assert list(node.line.ask(requests.Peek(node.declare(f"{queue}-again"), 1000)).bodies) == bodies(0, 100)


def test_the_command_says_how_far_it_is_and_what_is_wrong(
    node: Node, queue: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.push(queue, bodies(0, 10))
    flags = ["--endpoint", node.endpoint, "--queue", queue, "--target", str(tmp_path)]
    assert main(["export", *flags]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "10 messages were exported"
    assert main(["export", *flags, "--rows", "none"]) == 2
    assert "rows: a whole number" in capsys.readouterr().err
    assert main(["export", "--queue", queue]) == 2
    assert "missing: target" in capsys.readouterr().err


def test_it_needs_no_pyspark_and_names_what_it_needs(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 10))

    def command(without: str) -> subprocess.CompletedProcess[str]:
        program = (
            f"import sys; sys.modules[{without!r}] = None\nfrom dovetail.cli import main\n"
            f"sys.exit(main(['export', '--endpoint', {node.endpoint!r}, '--queue', {queue!r}, '--target', {str(tmp_path)!r}]))"
        )
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)

    done = command("pyspark")
    assert done.returncode == 0 and "10 messages were exported" in done.stdout, done.stderr
    done = command("pyarrow")
    assert done.returncode == 2 and "pip install 'dovetail[export]'" in done.stderr, done.stderr
