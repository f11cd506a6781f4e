"""Promises of `dovetail account`: a secret is shown once, tables are for people and --json for programs, and errors are one line."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from dovetail.cli import account
from dovetail.errors import BadRequest
from dovetail.service.accounts import Accounts


class Shell:
    """Runs the command as the command line does, on one file."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capsys = capsys

    def run(self, *words: str, file: bool = True) -> str:
        parser = argparse.ArgumentParser(prog="dovetail account", allow_abbrev=False)
        account.arguments(parser)
        assert account.run(parser.parse_args([*words, *(("--accounts", str(self.path)) if file else ())])) == 0
        return self._capsys.readouterr().out

    def json(self, *words: str) -> dict[str, str]:
        made: dict[str, str] = json.loads(self.run(*words, "--json"))
        return made


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DOVETAIL_ACCOUNTS", raising=False)
    return Shell(tmp_path / "accounts.json", capsys)


def test_an_account_is_made_with_its_first_key_and_its_secret_is_shown_once(shell: Shell) -> None:
    text = shell.run("create", "orders", "--id", "123456789012")
    (key,) = next(iter(Accounts.load(str(shell.path)))).keys
    assert text == (
        f"account 123456789012 (orders) made, in {shell.path}\nthe secret is shown this once; keep it now:\n\n"
        f"  export AWS_ACCESS_KEY_ID={key.access_key_id}\n  export AWS_SECRET_ACCESS_KEY={key.secret}\n"
    )
    later = [shell.run(*words) + shell.run(*words, "--json") for words in (["list"], ["key", "list"], ["quota", "orders"])]
    later.append(shell.run("key", "disable", key.access_key_id, "--json"))
    assert not [text for text in later if key.secret in text]


def test_programs_get_what_they_need_to_sign(shell: Shell) -> None:
    made = shell.json("create", "orders")
    key = Accounts.load(str(shell.path)).find(made["access_key_id"])
    assert key is not None
    assert made == {"account": key.account, "access_key_id": key.access_key_id, "secret_access_key": key.secret}
    temporary = shell.json("key", "add", "orders", "--expires", "12h")
    assert set(temporary) == {"account", "access_key_id", "secret_access_key", "session_token", "expires"}
    kept = Accounts.load(str(shell.path)).find(temporary["access_key_id"])
    assert kept is not None and kept.expires_s == kept.created_s + 12 * 3600 and kept.session_token == temporary["session_token"]
    assert f"AWS_SESSION_TOKEN={''}" in shell.run("key", "add", "orders", "--expires", "30m")


def test_people_get_tables(shell: Shell) -> None:
    assert shell.run("list") == "there are no accounts: dovetail account create NAME\n"
    assert shell.run("key", "list") == "there are no keys\n"
    made = shell.json("create", "orders", "--id", "123456789012")
    assert shell.run("quota", "orders", "--messages-max", "1000000") == (
        "account       name    messages_max  bytes_max  requests_per_s  queues_max\n"
        "123456789012  orders  1,000,000     -          -               -\n"
    )
    assert shell.run("list") == (
        "account       name    keys  enabled  messages_max  bytes_max  requests_per_s  queues_max\n"
        "123456789012  orders  1     1        1,000,000     -          -               -\n"
    )
    head, row = shell.run("key", "list", "orders").splitlines()
    assert head.split() == ["access_key_id", "account", "state", "created", "expires"]
    assert re.fullmatch(rf"{made['access_key_id']}  123456789012  enabled  \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ  -", row)


def test_a_key_is_rotated_step_by_step(shell: Shell) -> None:
    old = shell.json("create", "orders")["access_key_id"]
    new = shell.json("key", "add", "orders")["access_key_id"]
    states = lambda: [one["state"] for one in json.loads(shell.run("key", "list", "--json"))]  # noqa: E731
    assert states() == ["enabled", "enabled"]
    assert shell.run("key", "disable", old) == f"key {old} is disabled\n"
    assert states() == ["disabled", "enabled"]
    assert shell.run("key", "enable", old) == f"key {old} is enabled\n"
    assert shell.json("key", "disable", old)["state"] == "disabled"
    assert shell.run("key", "remove", old) == f"key {old} is removed\n"
    assert [one["access_key_id"] for one in json.loads(shell.run("key", "list", "--json"))] == [new]
    assert shell.json("key", "remove", new) == {"access_key_id": new, "removed": True}


def test_a_quota_is_set_shown_and_lifted(shell: Shell) -> None:
    shell.run("create", "orders", "--id", "123456789012")
    names = ["messages_max", "bytes_max", "requests_per_s", "queues_max"]
    shell.run("quota", "orders", *(word for n, name in enumerate(names) for word in (f"--{name.replace('_', '-')}", str(n))))
    whole = {"account": "123456789012", "name": "orders", **{name: n for n, name in enumerate(names)}}
    assert json.loads(shell.run("quota", "orders", "--json")) == [whole]
    assert json.loads(shell.run("quota", "123456789012", "--bytes-max", "none", "--json")) == [whole | {"bytes_max": None}]


def test_the_file_lies_in_the_data_folder_unless_it_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run("create", "one", "--store", "local:elsewhere", file=False)
    shell.run("create", "two", file=False)
    monkeypatch.setenv("DOVETAIL_STORE", "local:third")
    shell.run("create", "three", file=False)
    monkeypatch.setenv("DOVETAIL_ACCOUNTS", "fourth.json")
    shell.run("create", "four", file=False)
    found = {str(path): [one.name for one in Accounts.load(str(path))] for path in Path().rglob("*.json")}
    assert found == {
        "elsewhere/accounts.json": ["one"],
        "data/accounts.json": ["two"],
        "third/accounts.json": ["three"],
        "fourth.json": ["four"],
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["key", "add", "nobody"], "there is no account nobody; `dovetail account list` shows them"),
        (["key", "list", "nobody"], "there is no account nobody; `dovetail account list` shows them"),
        (["quota", "nobody"], "there is no account nobody; `dovetail account list` shows them"),
        (["key", "remove", "AKIANOBODY"], "there is no access key AKIANOBODY; `dovetail account key list` shows them"),
        (["key", "add", "orders", "--expires", "soon"], "--expires soon: must be a time such as 900s, 30m, 12h or 7d"),
        (["key", "add", "orders", "--expires", "1000d"], "a key expires after 1 to 31622400 seconds"),
        (["quota", "orders", "--queues-max", "few"], "--queues-max few: must be a whole number, or none"),
        (["create", "orders"], "there is an account named orders already"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(shell: Shell, words: list[str], text: str) -> None:
    shell.run("create", "orders")
    before = shell.path.read_bytes()
    with pytest.raises(BadRequest) as caught:
        shell.run(*words)
    assert (str(caught.value), shell.path.read_bytes()) == (text, before)


def test_a_store_without_a_folder_needs_the_file_named(shell: Shell) -> None:
    with pytest.raises(BadRequest) as caught:
        shell.run("list", "--store", "memory:", file=False)
    assert str(caught.value) == "memory: has no data folder; say where the accounts are with --accounts FILE"
