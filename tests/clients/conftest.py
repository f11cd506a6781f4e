"""One node in memory for all tests of a file, and nodes of one's own for those that need flags, a folder or a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.clients.node import Node

Start = Callable[..., Node]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("node"), "--store", "memory:", "--cooldowns", "off") as node:
        yield node
        assert node.running and "Traceback" not in node.errors, node.errors


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a node in the test's own folder; whatever still runs at the end is killed."""
    nodes: list[Node] = []

    def run(*flags: str, address: str = "127.0.0.1", environment: dict[str, str] | None = None) -> Node:
        nodes.append(Node(tmp_path, *flags, address=address, environment=environment))
        return nodes[-1].start()

    yield run
    for node in nodes:
        node.kill()


_numbers = count(1)


@pytest.fixture
def name() -> str:
    """A queue name that no other test uses."""
    return f"queue-{next(_numbers)}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real servers and real clients take their time: `make check` leaves them to `make test`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
