"""Promises of dovetail.testing, kept to a boto3 that nobody changed: a node in the test's own process whose time can be moved."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import testing
from dovetail.errors import BadRequest, LimitExceeded
from dovetail.testing import MovableClock, Server, serve

pytestmark = pytest.mark.slow

boto3 = pytest.importorskip("boto3")

ROOT = Path(__file__).resolve().parent.parent
JOIN_S = 60.0
"""Far beyond what anything here takes: a test that gets there hangs."""


@pytest.fixture(scope="module")
def one() -> Iterator[Server]:
    with serve() as made:
        yield made


@pytest.fixture
def server(one: Server) -> Server:
    one.reset()
    return one


@pytest.fixture(scope="module")
def sqs(one: Server) -> Any:
    return one.client()


def bodies(answer: dict[str, Any]) -> list[str]:
    return [message["Body"] for message in answer.get("Messages", [])]


def visible(sqs: Any, url: str) -> int:
    names = ["ApproximateNumberOfMessages"]
    return int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]["ApproximateNumberOfMessages"])


class Poll(threading.Thread):
    """A receiver that waits, and the moment from which it surely does."""

    def __init__(self, server: Server, url: str, wait_s: int) -> None:
        super().__init__(daemon=True)
        self.answer: dict[str, Any] = {}
        self._sqs, self._url, self._wait_s = server.client(), url, wait_s
        self.start()
        name = url.rsplit("/", 1)[1]
        line = f'queue="{name}"'
        while not any(line in row and row.endswith(" 1") for row in self._waiting(server)):
            pass

    @staticmethod
    def _waiting(server: Server) -> list[str]:
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=JOIN_S) as page:
            return [row for row in page.read().decode().splitlines() if row.startswith("dovetail_receivers_waiting{")]

    def run(self) -> None:
        self.answer = self._sqs.receive_message(QueueUrl=self._url, WaitTimeSeconds=self._wait_s)

    def end(self) -> list[str]:
        self.join(JOIN_S)
        assert not self.is_alive(), "nobody answered"
        return bodies(self.answer)


# Time


def test_a_delay_comes_due_when_time_is_advanced_and_not_before(server: Server, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="later")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="tea", DelaySeconds=900)
    server.advance(840)
    assert bodies(sqs.receive_message(QueueUrl=url)) == []
    server.advance(60)
    assert bodies(sqs.receive_message(QueueUrl=url)) == ["tea"]


def test_a_lease_ends_when_time_is_advanced(server: Server, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="leases", Attributes={"VisibilityTimeout": "43200"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="work")
    assert bodies(sqs.receive_message(QueueUrl=url)) == ["work"]
    assert bodies(sqs.receive_message(QueueUrl=url)) == []
    server.advance(43_200)
    assert bodies(sqs.receive_message(QueueUrl=url)) == ["work"]


def test_five_minutes_of_deduplication_pass_at_once(server: Server, sqs: Any) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName="bills.fifo", Attributes=attributes)["QueueUrl"]
    first = sqs.send_message(QueueUrl=url, MessageBody="pay 5", MessageGroupId="a")["MessageId"]
    assert sqs.send_message(QueueUrl=url, MessageBody="pay 5", MessageGroupId="a")["MessageId"] == first
    server.advance(301)
    assert sqs.send_message(QueueUrl=url, MessageBody="pay 5", MessageGroupId="a")["MessageId"] != first
    assert visible(sqs, url) == 2


def test_what_is_past_its_retention_is_gone(server: Server, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="old")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="yesterday's paper")
    server.advance(4 * 86_400 - 3600)
    assert visible(sqs, url) == 1
    server.advance(7200)
    assert visible(sqs, url) == 0


def test_a_waiting_receiver_gets_what_comes_due(server: Server, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="waiting")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="soon", DelaySeconds=15)
    poll = Poll(server, url, 20)
    server.advance(15)
    assert poll.end() == ["soon"]


def test_a_waiting_receiver_is_sent_home_when_its_own_time_is_over(server: Server, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="in-vain")["QueueUrl"]
    poll = Poll(server, url, 20)
    server.advance(20)
    assert poll.end() == []


def test_a_wait_is_over_before_what_comes_later_in_the_same_step(server: Server, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="order-of-things")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="too late", DelaySeconds=60)
    poll = Poll(server, url, 20)
    server.advance(60)
    assert poll.end() == []
    assert bodies(sqs.receive_message(QueueUrl=url)) == ["too late"]


def test_without_being_advanced_time_flows_as_always(server: Server, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="flowing")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="a second later", DelaySeconds=1)
    assert bodies(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)) == ["a second later"]


def test_timestamps_follow_the_clock_that_was_moved(server: Server, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="stamps")["QueueUrl"]
    stamps = []
    for _ in range(2):
        sqs.send_message(QueueUrl=url, MessageBody="now")
        (message,) = sqs.receive_message(QueueUrl=url, MessageSystemAttributeNames=["SentTimestamp"])["Messages"]
        stamps.append(int(message["Attributes"]["SentTimestamp"]))
        server.advance(86_400)
        sqs.purge_queue(QueueUrl=url)
    assert stamps[1] - stamps[0] >= 86_400_000


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), testing.ADVANCE_S_MAX + 1])
def test_time_does_not_go_back_and_has_an_end(server: Server, seconds: float) -> None:
    with pytest.raises(LimitExceeded, match="time does not go back"):
        server.advance(seconds)


def test_a_server_with_the_machines_clock_cannot_be_advanced() -> None:
    with serve(clock="system") as server, pytest.raises(BadRequest, match="can be moved"):
        server.advance(1)
    with pytest.raises(BadRequest, match="movable or system"), serve(clock="sundial"):
        pass


async def test_sleepers_wake_in_order_each_at_its_own_time_and_a_cancelled_one_never() -> None:
    clock = MovableClock()
    start, woken = clock.boot_ms(), []

    def sleep(after_s: int) -> Any:
        return clock.call_at(start + after_s * 1000, lambda: woken.append((after_s, (clock.boot_ms() - start) // 1000)))

    for after_s in (7200, 60, 3600):
        sleep(after_s)
    sleep(1800).cancel()
    await clock.advance(3601)
    assert woken == [(60, 60), (3600, 3600)]
    await clock.advance(3600)
    assert woken == [(60, 60), (3600, 3600), (7200, 7200)]


async def test_somebody_who_sleeps_again_and_again_is_woken_twice_and_not_a_million_times() -> None:
    clock = MovableClock()
    naps = 0

    def nap() -> None:
        nonlocal naps
        naps += 1
        clock.call_at(clock.boot_ms() + 1000, nap)

    clock.call_at(clock.boot_ms() + 1000, nap)
    await clock.advance(1_000_000)
    assert naps == 2


async def test_the_movable_clock_also_wakes_by_itself() -> None:
    clock = MovableClock()
    await clock.advance(100)
    woken = asyncio.Event()
    clock.call_at(clock.boot_ms() + 5, woken.set)
    await asyncio.wait_for(woken.wait(), JOIN_S)


# Emptying


def test_reset_leaves_nothing_behind(server: Server, sqs: Any) -> None:
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName="once.fifo", Attributes=fifo)["QueueUrl"]
    other = server.client(account="111111111111", region="eu-west-1")
    other.create_queue(QueueName="elsewhere")
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
    server.reset()
    assert "QueueUrls" not in sqs.list_queues() and "QueueUrls" not in other.list_queues()
    sqs.create_queue(QueueName="once.fifo", Attributes=fifo)
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
    assert bodies(sqs.receive_message(QueueUrl=url)) == ["x"], "also what was deduplicated is forgotten"


def test_reset_also_ends_the_60_second_rules_where_they_are_kept() -> None:
    with serve(cooldowns=True) as server:
        sqs = server.client()
        url = sqs.create_queue(QueueName="resting")["QueueUrl"]
        sqs.purge_queue(QueueUrl=url)
        with pytest.raises(sqs.exceptions.PurgeQueueInProgress):
            sqs.purge_queue(QueueUrl=url)
        server.advance(60)
        sqs.purge_queue(QueueUrl=url)
        sqs.delete_queue(QueueUrl=url)
        with pytest.raises(sqs.exceptions.QueueDeletedRecently):
            sqs.create_queue(QueueName="resting")
        server.reset()
        sqs.create_queue(QueueName="resting")


def test_queues_that_were_asked_for_are_there_and_again_after_a_reset(tmp_path: Path) -> None:
    file = tmp_path / "queues.toml"
    file.write_text('[queues.orders]\ndead_letter = "dead"\n[queues.dead]\n')
    for queues in (file, str(file), {"orders": {"dead_letter": "dead"}, "dead": {}}):
        with serve(queues=queues, account="123456789012") as server:
            sqs = server.client()
            made = [f"{server.url}/123456789012/{name}" for name in ("dead", "orders")]
            assert sqs.list_queues()["QueueUrls"] == made
            sqs.send_message(QueueUrl=made[1], MessageBody="x")
            server.reset()
            assert sqs.list_queues()["QueueUrls"] == made
            assert visible(sqs, made[1]) == 0


def test_a_wrong_queue_is_told_and_no_thread_stays_behind() -> None:
    before = threading.active_count()
    with pytest.raises(BadRequest, match=r"queues: \[queues.orders\] visibility: there is no such key"):
        serve(queues={"orders": {"visibility": 5}}).__enter__()
    assert threading.active_count() == before


# Around it


def test_servers_do_not_see_each_other_and_leave_nothing_behind() -> None:
    before = threading.active_count()
    with serve() as left, serve() as right:
        left.client().create_queue(QueueName="left")
        assert "QueueUrls" not in right.client().list_queues()
    assert threading.active_count() == before


def test_a_server_ends_although_somebody_still_waits() -> None:
    with serve() as server:
        url = server.client().create_queue(QueueName="patient")["QueueUrl"]
        poll = Poll(server, url, 20)
    assert poll.end() == []


def test_a_program_that_the_test_starts_finds_the_server_by_its_environment(server: Server, sqs: Any, tmp_path: Path) -> None:
    sqs.create_queue(QueueName="found")
    program = "import boto3; print(boto3.client('sqs').list_queues()['QueueUrls'])"
    done = subprocess.run(
        [sys.executable, "-c", program], env=server.environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.stdout.strip(), done.stderr) == (f"['{server.url}/000000000000/found']", "")


CONFTEST = """\
import pytest
from dovetail.testing_pytest import *

@pytest.fixture(scope="session")
def dovetail_options():
    return {"queues": {"orders": {}}}
"""
TESTS = """\
import pytest

@pytest.mark.parametrize("turn", range(2))
def test_it_is_empty(dovetail_server, turn):
    sqs = dovetail_server.client()
    (url,) = sqs.list_queues()["QueueUrls"]
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    sqs.send_message(QueueUrl=url, MessageBody="left behind")
    sqs.create_queue(QueueName="left-behind")
"""


def test_the_pytest_fixture_is_an_empty_server_for_each_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


# Pages


def test_every_line_of_the_page_beyond_sqs_works(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "beyond-sqs.md").read_text(), re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        queues = {"orders": {}, "bills.fifo": {}}
        with serve(beyond=True, queues=queues) as server:
            at = f"{server.url}/000000000000/"
            exec(block, {"sqs": server.client(), "url": at + "orders", "fifo_url": at + "bills.fifo", "endpoint": server.url})


def test_without_beyond_the_same_lines_are_refused() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "beyond-sqs.md").read_text(), re.DOTALL)
    for block in blocks[:-1]:
        with serve(queues={"orders": {}, "bills.fifo": {}}) as server:
            at, sqs = f"{server.url}/000000000000/", server.client()
            with pytest.raises(sqs.exceptions.ClientError):
                exec(block, {"sqs": sqs, "url": at + "orders", "fifo_url": at + "bills.fifo"})


def test_the_two_columns_of_the_page_about_moving_say_the_same_and_its_test_passes(server: Server) -> None:
    page = (ROOT / "docs" / "moving.md").read_text()
    columns = re.search(r"```\n(queues \{.*?)```", page, re.DOTALL)
    assert columns is not None
    toml = "\n".join(line[52:] for line in columns[1].splitlines())
    with serve(queues=tomllib.loads(toml)["queues"]) as other:
        found = [url.rsplit("/", 1)[1] for url in other.client().list_queues()["QueueUrls"]]
        assert found == ["bills.fifo", "orders", "orders-dead"]
    test = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert test is not None
    names: dict[str, Any] = {}
    exec(test[1], names)
    names["test_an_order_is_sent"](server)
