from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.doors.native.house import Inside, Process
from tests.doors.native.stranger import Stranger

_names = count(1)


@pytest.fixture(scope="session")
def served() -> Iterator[Process]:
    """One real server for the whole session."""
    process = Process("--store", "memory:", "--http", "127.0.0.1:0").begin()
    yield process
    process.end()


@pytest.fixture
def stranger(served: Process) -> Iterator[Stranger]:
    made = Stranger(served.port)
    yield made
    made.close()


@pytest.fixture
def another(served: Process) -> Iterator[Callable[[], Stranger]]:
    """Makes more connections to the same server."""
    made: list[Stranger] = []

    def make() -> Stranger:
        made.append(Stranger(served.port))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def name() -> str:
    """A queue's name that no other test has."""
    return f"queue-{next(_names)}"


@pytest.fixture
def queue(stranger: Stranger, name: str) -> int:
    return stranger.declare(name)


@pytest.fixture
def inside() -> Iterator[Inside]:
    """A node in this process, whose clock can be moved."""
    made = Inside()
    yield made
    made.close()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Process]:
    """A real server on a folder, not begun yet."""
    made = Process("--store", f"local:{tmp_path / 'data'}", "--http", "off", "--local-segment-bytes", "2MiB")
    yield made
    if made.process is not None:
        made.end()


PATIENT = frozenset({"test_auth", "test_credit", "test_cuts", "test_limits"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Connections that end at every byte, and waits that run out, take their time: `make check` leaves them to `make test`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.path.stem in PATIENT:
            item.add_marker(pytest.mark.slow)
