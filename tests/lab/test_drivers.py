"""Every driver, ours and peers': what is sent through it comes back once, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.lab.driver import Driver
from dovetail.lab.drivers.barefile import BareFile
from dovetail.lab.drivers.embedded import Embedded
from dovetail.lab.drivers.redis_streams import RedisStreams
from dovetail.lab.drivers.redis_zset import RedisZset
from dovetail.lab.drivers.resp import ReplyError, command, parse
from dovetail.lab.drivers.sqlite import Sqlite
from dovetail.lab.load import play
from dovetail.lab.measure import duplicates, latency_ns, loss
from dovetail.lab.trace import ACKED, COMPLETED, DELIVERED, SENT, Trace
from dovetail.lab.workload import Delay, Workload, number_of

DRIVERS: dict[str, Callable[[Path], Driver]] = {
    "embedded": Embedded,
    "sqlite-thread": lambda folder: Sqlite(folder, "thread"),
    "sqlite-inline": lambda folder: Sqlite(folder, "inline"),
    "redis-streams": RedisStreams,
    "redis-zset": RedisZset,
}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Driver:
    name: str = request.param
    if name.startswith("redis") and shutil.which("redis-server") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("redis-server is not installed, and in CI nothing is skipped")
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    return DRIVERS[name](tmp_path / "files")


@pytest.mark.parametrize("batch", [1, 7])
async def test_what_a_driver_sends_it_receives_once_and_completes(driver: Driver, batch: int, tmp_path: Path) -> None:
    workload = Workload(queues=2, senders=4, receivers=2, messages=70, batch=batch)
    trace = Trace("all")
    assert await driver.open(workload.queues, workload.senders + workload.receivers)
    try:
        await play(workload, driver, trace)
    finally:
        await driver.close()
    table = trace.table()
    by_kind = {kind: [row["payload"] for row in table.to_pylist() if row["kind"] == kind] for kind in (SENT, ACKED, DELIVERED, COMPLETED)}
    assert {kind: sorted(payloads) for kind, payloads in by_kind.items()} == {kind: list(range(70)) for kind in by_kind}
    assert (loss(table), duplicates(table)) == (0, 0)
    assert all(took > 0 for took in latency_ns(table).to_pylist())
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize("make", [Embedded, RedisZset], ids=["embedded", "redis-zset"])
async def test_a_delayed_message_is_not_received_before_its_time(make: Callable[[Path], Driver], tmp_path: Path) -> None:
    if make is RedisZset and shutil.which("redis-server") is None and os.environ.get("CI") != "true":
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    driver = make(tmp_path / "files")
    await driver.open(1, 1)
    try:
        body = Workload(messages=1).body(5)
        await driver.send(0, 0, [body], [150])
        assert await driver.receive(0, 0, 10) == []
        looks = 0
        while not (got := await driver.receive(0, 0, 10)):
            looks += 1
            assert looks < 200
        assert [number_of(one.body) for one in got] == [5]
    finally:
        await driver.close()


async def test_the_bare_file_takes_everything_and_gives_nothing(tmp_path: Path) -> None:
    driver = BareFile(tmp_path)
    await driver.open(1, 4)
    trace = Trace()
    await play(Workload(senders=4, messages=40), driver, trace)
    assert trace.table().num_rows == 80 and await driver.receive(0, 0, 1) == []
    assert len(driver.loop_ns(b"x", 3)) == 3
    await driver.close()
    assert os.listdir(tmp_path) == []


async def test_a_paced_workload_keeps_its_pace(tmp_path: Path) -> None:
    driver = BareFile(tmp_path)
    await driver.open(1, 2)
    trace = Trace()
    await play(Workload(senders=2, messages=20, rate_per_s=100, delay=Delay(5, 9)), driver, trace)
    await driver.close()
    sent = [row for row in trace.table().to_pylist() if row["kind"] == SENT]
    assert max(row["time_ns"] for row in sent) - min(row["time_ns"] for row in sent) >= 0.18e9
    assert all(5e6 <= row["due_ns"] - row["time_ns"] <= 9e6 for row in sent)


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"+OK\r\n", b"OK"),
        (b":42\r\n", 42),
        (b"$3\r\na\r\n\r\n", b"a\r\n"),
        (b"$-1\r\n", None),
        (b"*-1\r\n", []),
        (b"*2\r\n$1\r\na\r\n*1\r\n:7\r\n", [b"a", [7]]),
    ],
)
def test_a_reply_is_read_whole_or_not_yet(data: bytes, reply: object) -> None:
    assert parse(data, 0) == (reply, len(data))
    assert all(parse(data[:cut], 0) is None for cut in range(1, len(data)))


def test_a_refusal_of_redis_is_an_error_and_a_command_is_an_array() -> None:
    found = parse(b"-ERR no\r\n", 0)
    assert found is not None and isinstance(found[0], ReplyError)
    assert command("SET", b"k", 12) == b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n12\r\n"
