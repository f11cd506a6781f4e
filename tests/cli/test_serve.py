"""Promises of `dovetail serve`, kept from outside: the ready line, the ports, the pages, and a clean stop."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.Popen[str]"]
READY = re.compile(r"dovetail ready http=(http://127\.0\.0\.1:(\d+)) native=off\n")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the command in an empty folder; whatever still runs at the end is killed."""
    processes = []

    def run(*arguments: str, program: tuple[str, ...] = ("-m", "dovetail", "serve")) -> subprocess.Popen[str]:
        command = [sys.executable, *program, *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")} | {"DOVETAIL_NATIVE": "off"}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True)
        processes.append(process)
        return process

    yield run
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    match = READY.fullmatch(line)
    assert match is not None, (line, process.stderr.read() if process.stderr and not line else "")
    assert int(match[2]) != 0
    return match[1]


@pytest.mark.parametrize("store", ["memory:", "local:./data"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_one_ready_line_serves_its_pages_and_stops_with_0(start: Start, store: str, number: signal.Signals) -> None:
    process = start("--store", store, "--http", "127.0.0.1:0")
    url = ready(process)
    assert page(f"{url}/-/healthy") == (200, "ok\n")
    assert page(f"{url}/-/ready") == (200, "ready\n")
    status, metrics = page(f"{url}/metrics")
    assert status == 200 and 'dovetail_http_answers_total{status="200"} 2\n' in metrics
    assert page(f"{url}/")[0] == 400, "the SQS door misses an action"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out == "" and err.splitlines()[-1].endswith("dovetail.serve stopped")


def test_a_second_node_on_the_same_folder_is_refused_and_the_first_goes_on(start: Start) -> None:
    first = start("--http", "127.0.0.1:0")
    url = ready(first)
    second = start("--http", "127.0.0.1:0")
    out, err = second.communicate(timeout=60)
    assert second.returncode == 1 and out == "" and "another process" in err
    assert page(f"{url}/-/ready")[0] == 200


def test_with_the_door_shut_it_still_serves(start: Start) -> None:
    process = start("--store", "memory:", "--http", "off")
    assert process.stdout is not None and process.stdout.readline() == "dovetail ready http=off native=off\n"
    process.terminate()
    assert process.wait(60) == 0


def test_both_doors_are_open_unless_told_otherwise(start: Start) -> None:
    process = start("--store", "memory:", "--http", "127.0.0.1:0", "--native", "127.0.0.1:0", "--advertise", "queue.example")
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.fullmatch(r"dovetail ready http=http://127\.0\.0\.1:\d+ native=dovetail://127\.0\.0\.1:(\d+)\n", line)
    assert match is not None, line
    with socket.create_connection(("127.0.0.1", int(match[1])), 5) as client:
        client.sendall(b"DOVETAIL\1\0\1\0\0\0\0\0")
        hello = client.recv(100)
        assert hello[4] == 128 and len(hello) == 56
        client.sendall((64).to_bytes(4, "little") + b"\1\0\0\0" + (1).to_bytes(8, "little") + bytes(64))
        assert client.recv(1000).endswith(f"queue.example:{match[1]}".encode())
    process.terminate()
    assert process.wait(60) == 0


@pytest.mark.parametrize("door", ["--http", "--native"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "example.org:0"])
def test_it_refuses_to_listen_beyond_this_machine(start: Start, tmp_path: Path, door: str, address: str) -> None:
    process = start(*(["--http", "off"] if door == "--native" else []), door, address)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"dovetail: {door} {address}: with --auth open a node listens on this machine only")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("door", ["--http", "--native"])
def test_a_taken_port_is_told_before_the_store_is_opened(start: Start, tmp_path: Path, door: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = start("--http", "127.0.0.1:0", door, f"127.0.0.1:{taken.getsockname()[1]}")
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "cannot listen there" in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", [("--native", "127.0.0.1:99999"), ("--auth", "signed"), ("--store", "nonsense")])
def test_what_does_not_work_is_refused_before_anything_is_opened(start: Start, tmp_path: Path, flag: tuple[str, str]) -> None:
    process = start(*flag)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and err.splitlines()[-1].startswith(f"dovetail: {flag[0]} {flag[1]}: "), err
    assert list(tmp_path.iterdir()) == []


def test_log_lines_are_json_where_asked_for(start: Start) -> None:
    import json

    process = start("--store", "memory:", "--http", "127.0.0.1:0", "--log-format", "json")
    ready(process)
    process.terminate()
    _, err = process.communicate(timeout=60)
    lines = [json.loads(line) for line in err.splitlines()]
    assert lines and all(set(line) == {"time", "level", "logger", "message"} for line in lines)


@pytest.mark.slow
def test_it_starts_and_stops_within_half_a_second_of_work(start: Start) -> None:
    times_s = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = start("--http", "127.0.0.1:0")
        ready(process)
        process.terminate()
        assert process.wait(60) == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # Processor time, and the best of three: what is measured is the program, not what else the machine does.
    assert min(times_s) < 0.5, times_s


STAND_IN = """
import asyncio, sys
import dovetail.cli.serve as command
from dovetail.settings import load

class Broker:
    asked = False
    def stop_waiting(self): pass
    async def metrics_page(self, beside):
        self.asked = True
        return b"node_metric 1\\n"

class Door:
    is_brief = staticmethod(lambda request: True)
    def handle(self, request): raise NotImplementedError

class Node:
    broker = Broker()
    @property
    def ready(self): return not self.broker.asked
    def sqs_door(self, settings, accounts): return Door()
    async def close(self): pass

async def start(store, *, settings):
    return Node()

command.start = start
sys.exit(asyncio.run(command.serve(load({"http": "127.0.0.1:0", "native": "off"}, {}).settings)))
"""


def test_a_node_that_stops_by_itself_ends_the_process_with_1(start: Start) -> None:
    process = start(program=("-c", STAND_IN))
    url = ready(process)
    assert "node_metric 1\n" in page(f"{url}/metrics")[1]
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
