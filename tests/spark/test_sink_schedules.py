"""Schedules in which a simpler sink would lose rows, double them, or keep for ever what nobody publishes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from dovetail.core import codec
from dovetail.core.column import Column
from dovetail.core.operation import Numbered, Push
from dovetail.doors.native.codec import requests
from dovetail.errors import NoSuchStage
from dovetail.settings import QuotaDefaults, Settings
from dovetail.spark import sink, staging
from dovetail.spark.sink import Writer, owner_of
from dovetail.spark.sinkoptions import sink_options_of
from tests.doors.native.house import Inside
from tests.spark.house import Node, bodies
from tests.spark.test_sink import SCHEMA, batch_of, writer_of

FIRST, SECOND = [b"a", b"b"], [b"c", b"a", b"b"]
"""The rows of a task as its two attempts see them: the first dies behind the second row."""


DAY_S = 86_400


class Lost(Exception):
    """The executor is gone."""


def attempts(attempt: Any) -> Any:
    """Spark runs a task until an attempt of it ends well, and names that one."""

    def dies() -> Iterator[pa.RecordBatch]:
        yield batch_of(FIRST)
        raise Lost

    with pytest.raises(Lost):
        attempt(dies())
    return attempt(iter([batch_of(SECOND)]))


def test_a_task_that_sees_its_rows_in_another_order_when_it_is_tried_again_stores_each_once(node: Node, queue: str) -> None:
    node.declare(queue)
    writer = writer_of(node, queue)
    staged = attempts(writer.stage)
    for _ in range(2):  # The answer to the first was lost, or the driver died behind it.
        writer.publish([staged], owner_of(queue), 0)
    assert sorted(node.waiting(queue)) == [b"a", b"b", b"c"]


def test_twin_a_sink_that_numbers_rows_loses_one_and_doubles_another(node: Node, queue: str) -> None:
    """Row 1 of partition 0 is another row the second time: the node takes it for a repeat."""
    known = node.declare(queue)

    def numbered(batches: Iterator[pa.RecordBatch]) -> None:
        number = 1
        for batch in batches:
            for body in batch.column("body").to_pylist():
                # The producer is the partition of the batch, so an attempt goes on as the same one.
                producing = node.line.ask(requests.Producer(queue.encode().ljust(16)[:16]))
                if number > producing.last:
                    push = Push((known,), Column.of([body]), numbered=Numbered(producing.identity, producing.epoch, number))
                    node.line.ask(requests.Push(codec.encode_push(push)))
                number += 1

    attempts(numbered)
    assert node.waiting(queue) == [b"a", b"b", b"b"], "c is lost, b is there twice, and nobody was told"


def stages(inside: Inside) -> int:
    return inside.call(lambda: len(inside.node.store.stages()))


def inside_writer(inside: Inside, queue: str) -> Writer:
    inside.stranger().declare(queue)
    return Writer(
        sink_options_of({"endpoint": f"dovetail://127.0.0.1:{inside.port}", "queue": queue, "timeout": "60"}), SCHEMA, overwrite=False
    )


def test_what_a_job_that_died_has_staged_is_discarded_after_a_day() -> None:
    inside = Inside()
    try:
        writer = inside_writer(inside, "orders")
        abandoned = writer.stage(iter([batch_of(bodies(0, 100))]))
        inside.advance(DAY_S / 2)
        assert stages(inside) == 1, "a slow job has its day"
        for _ in range(1000):  # In steps, as clocks go: a node expires nothing before it trusts them.
            if not stages(inside):
                break
            inside.advance(300)
        with pytest.raises(NoSuchStage):
            writer.publish([abandoned], owner_of("job"), 0)
        late = writer.stage(iter([batch_of([b"late"])]))
        writer.publish([late], owner_of("job"), 0)
    finally:
        inside.close()


def test_a_node_that_says_not_so_fast_is_obeyed_and_every_row_arrives() -> None:
    inside = Inside(settings=Settings(quota=QuotaDefaults(account_requests=20)))
    moving, refusals = threading.Event(), list[Exception]()
    try:
        writer = inside_writer(inside, "orders")

        def lets_time_pass() -> None:
            while not moving.wait(0.05):
                inside.advance(1)

        other = threading.Thread(target=lets_time_pass)
        other.start()
        # Every batch is a frame of its own: three times as many as a second allows.
        wait = staging.Attempts.failed
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(staging.Attempts, "failed", lambda *told, **more: (refusals.append(told[1]), wait(*told, **more)))
            patch.setattr(sink.staging.rows, "ENTRY_BYTES_TARGET", 1)
            staged = writer.stage(batch_of([body]) for body in bodies(0, 60))
        writer.publish([staged], owner_of("job"), 0)
        assert refusals, "it was told to wait"
        moving.set()
        other.join()

        async def waiting() -> list[bytes]:
            return [one.body for one in await (await inside.node.queue("orders")).peek(max=100)]

        assert inside.do(waiting()) == bodies(0, 60)
    finally:
        moving.set()
        inside.close()
