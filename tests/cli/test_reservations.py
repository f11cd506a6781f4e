"""Promises of `dovetail queue reservations` and `release`: what they show of a real node, and what they give back."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dovetail
from dovetail.cli import main
from tests.spark.house import Node

pytestmark = pytest.mark.slow


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("DOVETAIL_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    node = Node(f"local:{tmp_path / 'data'}").start()
    with dovetail.blocking.connect(node.endpoint) as client:
        orders = client.queue("orders")
        orders.send_many([b"1", b"2", b"3"])
        orders.reservation("job").reserve(7, max=2)
    yield node.endpoint
    node.stop()


def test_what_is_set_aside_is_shown_and_given_back(
    endpoint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["queue", "reservations", "orders", "--endpoint", endpoint]) == 0
    title, line = capsys.readouterr().out.splitlines()
    assert title.split() == "name owned last batch settled open batches messages".split() and line.split() == "job yes 7 -1 1 2".split()
    keyboard = io.StringIO("no\n")
    monkeypatch.setattr(keyboard, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", keyboard)
    assert main(["queue", "release", "orders", "job", "--endpoint", endpoint]) == 1
    assert "give back 2 messages of job?" in capsys.readouterr().err
    assert main(["queue", "release", "orders", "job", "--yes", "--endpoint", endpoint]) == 0
    assert capsys.readouterr().out == "2 messages are back in orders\n"
    monkeypatch.setenv("DOVETAIL_ENDPOINT", endpoint)
    assert main(["queue", "reservations", "orders", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["owned"], told["messages"]) == ("no", 0)
    assert main(["queue", "release", "orders", "job", "--forget", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"released": 0}
    assert main(["queue", "reservations", "orders"]) == 0
    assert "nobody has set anything aside in orders" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (["release", "orders", "another", "--yes"], "orders has no reservation 'another'"),
        (["reservations", "order"], "There is no queue 'order'"),
        (["reservations", "orders", "--endpoint", "http://127.0.0.1:9324"], "as the node's ready line says"),
    ],
)
def test_what_is_not_there_is_told_and_nothing_is_made(
    endpoint: str, capsys: pytest.CaptureFixture[str], told: list[str], words: str
) -> None:
    assert main(["queue", *told, *([] if "--endpoint" in told else ["--endpoint", endpoint])]) == 2
    assert words in capsys.readouterr().err
    with dovetail.blocking.connect(endpoint) as client:
        assert client.queues() == ["orders"]
