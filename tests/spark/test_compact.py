"""Small files put together beside writers and readers: exact at every step, wherever it dies. No JVM."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dovetail.errors import DovetailError
from dovetail.spark.pipelines import compact, find, published
from dovetail.spark.pipelines.archived import archived, clusters, stretch_of
from dovetail.spark.pipelines.delta import DeltaPublished
from dovetail.spark.pipelines.published import Published
from tests.spark.test_archive import delta_bodies, parquet_bodies, stage

HOUR = "2026-05-01-12"


def published_batches(target: Path, batches: range, name: str = "archive") -> Published:
    sink = Published(target, name)
    for batch in batches:
        stage(sink, batch, {HOUR: range(1 + 10 * batch, 11 + 10 * batch)})
        sink.publish(batch)
    return sink


def run(target: Path, **more: str) -> list[str]:
    lines: list[str] = []
    pipeline = find("compact")
    pipeline.run(pipeline.checked({"target": str(target), "older": "0s", **more}), lines.append)
    return lines


def files(target: Path) -> list[Path]:
    return sorted(target.glob("queue=*/hour=*/*.parquet"))


def test_small_files_become_one_and_rows_keep_their_order(tmp_path: Path) -> None:
    published_batches(tmp_path, range(12))
    assert run(tmp_path) == [f"queue=orders/hour={HOUR}: 12 files became 1", "12 files became 1"]
    (one,) = files(tmp_path)
    assert pq.read_table(one)["sequence"].to_pylist() == list(range(1, 121))
    assert parquet_bodies(tmp_path) == list(range(1, 121))
    published_batches(tmp_path, range(12, 14))
    assert run(tmp_path)[-1] == "3 files became 1"
    assert parquet_bodies(tmp_path) == list(range(1, 141))
    assert run(tmp_path) == ["0 files became 0"]
    assert not list((tmp_path / "_staged").iterdir())


def test_what_is_under_way_or_nobodys_or_large_or_new_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = published_batches(tmp_path, range(6))
    # Batch 3 died when its file was moved and nothing said yet that it is done.
    sink._write(3, sink.files(3), done=False)
    folder = files(tmp_path)[0].parent
    (folder / "_SUCCESS").touch()
    (folder / "mine.parquet").write_bytes((folder / "archive-000000000000-00000.parquet").read_bytes())
    assert run(tmp_path, older="1h")[-1] == "0 files became 0"
    assert run(tmp_path)[-1] == "5 files became 2"
    left = sorted(path.name for path in folder.iterdir())
    assert left[0] == "_SUCCESS" and left[-1] == "mine.parquet" and "archive-000000000003-00000.parquet" in left and len(left) == 5
    (folder / "mine.parquet").unlink()
    assert [rows["sequence"].to_pylist() for rows in archived(tmp_path, "orders")] == [
        list(range(1, 31)),
        list(range(31, 41)),
        list(range(41, 61)),
    ]
    # It is run again, and replaces its file by name.
    stage(sink, 3, {HOUR: range(31, 41)})
    sink.publish(3)
    assert parquet_bodies(tmp_path) == list(range(1, 61))
    monkeypatch.setattr(compact, "number_of", lambda *_: 0)
    assert run(tmp_path)[-1] == "0 files became 0", "none is small beside a size of nothing"


def test_two_archives_in_one_folder_stay_apart(tmp_path: Path) -> None:
    published_batches(tmp_path, range(4))
    published_batches(tmp_path, range(4), "other-1")
    assert run(tmp_path)[-1] == "8 files became 2"
    assert sorted(path.name.split("-large-")[0] for path in files(tmp_path)) == ["archive", "other-1"]


STEPS: list[tuple[Any, str]] = [(compact, "merge"), (compact, "exchange"), (os, "link"), (shutil, "rmtree"), (compact, "sync")]


@contextmanager
def around(monkeypatch: pytest.MonkeyPatch, look: Callable[[], None]) -> Iterator[None]:
    """Calls `look` before and behind each step that changes files."""
    with monkeypatch.context() as patch:
        for place, name in STEPS:
            real = getattr(place, name)

            def one(*given: Any, real: Any = real, **more: Any) -> Any:
                look()
                done = real(*given, **more)
                look()
                return done

            patch.setattr(place, name, one)
        yield


def test_a_reader_sees_the_same_rows_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published_batches(tmp_path, range(6))
    looks = []
    with around(monkeypatch, lambda: looks.append(parquet_bodies(tmp_path))):
        run(tmp_path)
    assert len(files(tmp_path)) == 1 and len(looks) > 10
    assert all(seen == list(range(1, 61)) for seen in looks)


def test_without_the_exchange_a_reader_sees_rows_twice_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: files are moved and removed one by one."""
    published_batches(tmp_path, range(6))
    looks = []

    def one_by_one(made: Path, folder: Path) -> None:
        before = list(folder.iterdir())
        for path in made.iterdir():
            if "-large-" in path.name:
                os.replace(path, folder / path.name)
        looks.append(parquet_bodies(tmp_path))
        for path in before:
            path.unlink()

    monkeypatch.setattr(compact, "exchange", one_by_one)
    run(tmp_path)
    assert [seen for seen in looks if seen != list(range(1, 61))]


def test_whoever_listed_before_gets_an_error_and_never_other_rows(tmp_path: Path) -> None:
    published_batches(tmp_path, range(6))
    before = files(tmp_path)
    run(tmp_path)
    assert not set(before) & set(files(tmp_path))
    for path in before:
        with pytest.raises(FileNotFoundError):
            pq.read_table(path)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", STEPS, ids=[name for _, name in STEPS])
@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
def test_one_that_dies_at_any_step_leaves_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str], behind: bool
) -> None:
    published_batches(tmp_path, range(6))
    (files(tmp_path)[0].parent / "_SUCCESS").touch()
    place, name = step
    real = getattr(place, name)

    def dies(*given: Any, **more: Any) -> Any:
        if behind:
            real(*given, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(place, name, dies)
        with pytest.raises(Killed):
            run(tmp_path)
    assert parquet_bodies(tmp_path) == list(range(1, 61))
    run(tmp_path)
    assert parquet_bodies(tmp_path) == list(range(1, 61)) and len(files(tmp_path)) == 1
    assert not list((tmp_path / "_staged").iterdir())


def publishing(target: Path, monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """A batch that is published by somebody else at the worst moment: behind the look at the folder and before the exchange."""
    real, threads = compact.exchange, []

    def exchange(made: Path, folder: Path) -> None:
        thread = threading.Thread(target=published_batches, args=(target, range(6, 7)))
        threads.append(thread)
        thread.start()
        # Time enough where nothing holds it up; where the lock does, it waits for us.
        thread.join(0.3)
        real(made, folder)

    monkeypatch.setattr(compact, "exchange", exchange)
    return threads


def test_a_batch_that_is_published_meanwhile_is_there_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published_batches(tmp_path, range(6))
    threads = publishing(tmp_path, monkeypatch)
    run(tmp_path)
    threads[0].join()
    assert parquet_bodies(tmp_path) == list(range(1, 71))


def test_without_the_lock_a_batch_that_is_published_meanwhile_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin."""
    published_batches(tmp_path, range(6))
    real = published.held

    @contextmanager
    def unheld(path: Path, **more: Any) -> Iterator[None]:
        yield

    for module in (compact, published):
        monkeypatch.setattr(module, "held", unheld)
    assert real is not unheld
    real_exchange = compact.exchange

    def exchange(made: Path, folder: Path) -> None:
        published_batches(tmp_path, range(6, 7))
        real_exchange(made, folder)

    monkeypatch.setattr(compact, "exchange", exchange)
    run(tmp_path)
    assert parquet_bodies(tmp_path) == list(range(1, 61))


def test_files_that_overlap_are_read_and_written_in_order(tmp_path: Path) -> None:
    sink = Published(tmp_path, "archive")
    for batch, numbers in enumerate([range(1, 20, 2), range(2, 21, 2), range(21, 31)]):
        stage(sink, batch, {HOUR: numbers})  # type: ignore[dict-item]
        sink.publish(batch)
    assert [len(one) for one in clusters(list(filter(None, map(stretch_of, files(tmp_path)))))] == [2, 1]
    assert [rows["sequence"].to_pylist() for rows in archived(tmp_path, "orders")] == [list(range(1, 21)), list(range(21, 31))]
    run(tmp_path)
    assert pq.read_table(files(tmp_path)[0])["sequence"].to_pylist() == list(range(1, 31))


def test_a_delta_table_is_compacted_beside_its_archive(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    sink = DeltaPublished(tmp_path, "archive")

    def publish(batches: range) -> None:
        for batch in batches:
            stage(sink, batch, {HOUR: range(1 + 10 * batch, 11 + 10 * batch)})
            sink.publish(batch)

    publish(range(8))
    writer = threading.Thread(target=publish, args=(range(8, 20),))
    writer.start()
    while writer.is_alive():
        run(tmp_path)
    writer.join()
    lines = run(tmp_path)
    assert delta_bodies(tmp_path) == list(range(1, 201))
    assert sink.done(19) and not sink.done(20)
    assert pa.concat_tables(archived(tmp_path, "orders"))["sequence"].to_pylist() == list(range(1, 201))
    assert lines[-1].startswith("0 files that were replaced"), "readers of older versions keep theirs for a week"
    assert run(tmp_path, keep="0s")[-1].split()[0] != "0"
    assert delta_bodies(tmp_path) == list(range(1, 201)) and len(files(tmp_path)) == 1


def test_one_at_a_time(tmp_path: Path) -> None:
    published_batches(tmp_path, range(2))
    with published.held(tmp_path / "_batches" / "compact"), pytest.raises(DovetailError, match="another one puts files together"):
        run(tmp_path)
    with pytest.raises(DovetailError, match="there is no folder"):
        run(tmp_path / "nothing")
