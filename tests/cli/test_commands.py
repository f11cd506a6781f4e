"""Promises of the command line as a whole: help that helps, errors of one line, exit codes that scripts can trust."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.cli import COMMANDS, main


def test_without_a_command_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    assert len(capsys.readouterr().out) > 100


def test_an_unknown_command_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sevre"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("dovetail: there is no command 'sevre'; there are serve, ") and err.count("\n") == 1


def test_version_names_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("dovetail 0.")


def test_settings_prints_each_value_and_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "d.toml"
    config.write_text('[log]\nformat = "json"\n')
    monkeypatch.setenv("DOVETAIL_DRAIN_S", "3")
    monkeypatch.setenv("DOVETAIL_DRIAN_S", "3")
    assert main(["settings", "--json", "--http", "off", "--config", str(config)]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["http"] == {"value": "off", "source": "--http"}
    assert told["drain_s"] == {"value": "3", "source": "DOVETAIL_DRAIN_S"}
    assert told["log.format"] == {"value": "json", "source": str(config)}
    assert told["store"] == {"value": "local:./data", "source": "default"}
    assert "DOVETAIL_DRIAN_S" in err


def test_settings_prints_a_table_for_people_without_passwords(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--store", "redis://user:secret@host/"]) == 0
    first = capsys.readouterr().out.splitlines()[0].split()
    assert first == ["store", "redis://***@host/", "--store"]


def test_a_bad_setting_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--http", "nowhere"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("dovetail: --http nowhere: must be HOST:PORT") and err.count("\n") == 1


def test_a_reader_that_has_enough_is_no_error() -> None:
    process = subprocess.run(
        f"{sys.executable} -m dovetail settings | head -1", shell=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert process.stdout.startswith("store") and process.stderr == ""


def test_the_command_line_loads_nothing_that_only_the_lab_needs() -> None:
    code = "import sys, dovetail.cli.serve; print(*sorted({'pyarrow', 'redis', 'hypothesis'} & set(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert process.stdout.split() == []
