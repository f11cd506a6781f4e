"""Promises of the accounts: a file that is whole or refused with its exact problem, keys that come and go while a node runs, and secrets
that nobody sees by accident."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import BadRequest
from dovetail.service import accounts as module
from dovetail.service.accounts import (
    ENVIRONMENT_KEY_ID,
    ENVIRONMENT_SECRET,
    KEYS_PER_ACCOUNT_MAX,
    Account,
    Accounts,
    AccountsRefused,
    Key,
    Quota,
    path_beside,
)

NOW_S = 1_794_868_200


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "accounts.json")


def write(path: str, text: str, mode: int = 0o600) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(text)
    os.chmod(path, mode)


def one_key(**changes: object) -> str:
    key = {"id": "AKIAX", "secret": "secret-secret", "enabled": True, "created_s": 1} | changes
    return json.dumps({"format": 1, "accounts": [{"id": "1" * 12, "name": "a", "quota": {}, "keys": [key]}]})


def test_what_was_made_is_found_again(path: str) -> None:
    accounts = Accounts.load(path)
    assert (len(accounts), list(accounts)) == (0, [])
    made = accounts.create("orders", "123456789012")
    key = accounts.add_key("orders", NOW_S)
    temporary = accounts.add_key("123456789012", NOW_S, 3600)
    accounts.set_quota("orders", {"queues_max": 5, "messages_max": 0})
    assert made == Account("123456789012", "orders")
    whole = Account("123456789012", "orders", Quota(queues_max=5, messages_max=0), (key, temporary))
    for seen in (accounts, Accounts.load(path)):
        assert list(seen) == [whole]
        assert (seen.account("orders"), seen.account("123456789012"), seen.account("x")) == (whole, whole, None)
        assert (seen.find(key.access_key_id), seen.find(temporary.access_key_id), seen.find("AKIA")) == (key, temporary, None)


def test_keys_look_like_those_of_aws_and_only_temporary_ones_have_a_token_and_an_end(path: str) -> None:
    accounts = Accounts.load(path)
    account = accounts.create("orders")
    assert re.fullmatch(r"[1-9][0-9]{11}", account.id)
    key, temporary = accounts.add_key("orders", NOW_S), accounts.add_key("orders", NOW_S, 60)
    assert re.fullmatch(r"AKIA[A-Z2-7]{16}", key.access_key_id) and re.fullmatch(r"[A-Za-z0-9+/]{40}", key.secret)
    assert (key.account, key.enabled, key.created_s, key.expires_s, key.session_token) == (account.id, True, NOW_S, None, None)
    assert re.fullmatch(r"ASIA[A-Z2-7]{16}", temporary.access_key_id)
    assert temporary.expires_s == NOW_S + 60 and len(str(temporary.session_token)) == 128


def test_a_key_is_rotated_without_a_moment_without_one(path: str) -> None:
    accounts = Accounts.load(path)
    accounts.create("orders")
    old, new = accounts.add_key("orders", NOW_S), accounts.add_key("orders", NOW_S)
    assert accounts.find(old.access_key_id) and accounts.find(new.access_key_id)
    assert accounts.set_enabled(old.access_key_id, False).enabled is False
    assert (accounts.find(old.access_key_id), accounts.find(new.access_key_id)) == (None, new)
    accounts.set_enabled(old.access_key_id, True)
    assert accounts.find(old.access_key_id) == old
    assert accounts.remove_key(old.access_key_id) == old
    assert Accounts.load(path).find(old.access_key_id) is None
    for change in (accounts.remove_key, lambda key: accounts.set_enabled(key, True)):
        with pytest.raises(BadRequest, match=f"there is no access key {old.access_key_id}"):
            change(old.access_key_id)


def test_an_account_has_room_for_a_few_keys_and_expired_ones_make_room(path: str) -> None:
    accounts = Accounts.load(path)
    accounts.create("orders")
    for _ in range(KEYS_PER_ACCOUNT_MAX):
        accounts.add_key("orders", NOW_S, 60)
    with pytest.raises(BadRequest, match="the most it may have"):
        accounts.add_key("orders", NOW_S + 59)
    kept = accounts.add_key("orders", NOW_S + 60)
    assert [one.keys for one in Accounts.load(path)] == [(kept,)]


def test_names_ids_and_quotas_follow_their_rules(path: str) -> None:
    accounts = Accounts.load(path)
    accounts.create("orders", "123456789012")
    for name, id, text in (
        ("orders", None, "there is an account named orders already"),
        ("other", "123456789012", "there is an account 123456789012 already"),
        ("", None, "'': a name begins with a letter or digit and has up to 64 letters, digits and _ . @ -"),
        ("a" * 65, None, f"'{'a' * 65}': a name begins with a letter or digit and has up to 64 letters, digits and _ . @ -"),
        ("other", "12", "'12': an account's id is twelve digits"),
    ):
        with pytest.raises(BadRequest) as caught:
            accounts.create(name, id)
        assert str(caught.value) == text
    for changes in ({"queues_max": -1}, {"wishes_max": 3}):
        with pytest.raises(BadRequest, match="a quota is one of messages_max, bytes_max, requests_per_s, queues_max"):
            accounts.set_quota("orders", changes)
    with pytest.raises(BadRequest, match="there is no account nobody"):
        accounts.set_quota("nobody", {"queues_max": 1})
    assert accounts.set_quota("orders", {"queues_max": None}).quota == Quota()
    with pytest.raises(BadRequest, match="expires after 1 to"):
        accounts.add_key("orders", NOW_S, 0)
    assert list(accounts) == list(Accounts.load(path)) == [Account("123456789012", "orders")]


def test_the_file_is_for_its_owner_alone_from_its_first_byte(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    fsync = os.fsync
    monkeypatch.setattr(module.os, "fsync", lambda fd: (modes.append(os.fstat(fd).st_mode & 0o777), fsync(fd))[1])
    old = os.umask(0)
    try:
        Accounts.load(path).create("orders")
    finally:
        os.umask(old)
    assert modes[0] == 0o600 and os.stat(path).st_mode & 0o777 == 0o600
    assert os.listdir(os.path.dirname(path)) == ["accounts.json"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_read_or_write_is_refused(path: str, mode: int) -> None:
    write(path, one_key(), mode)
    with pytest.raises(AccountsRefused) as caught:
        Accounts.load(path)
    assert str(caught.value) == f"{path}: others can read or write it (mode {mode:o}), and it holds secrets: chmod 600 it"


def test_a_write_that_fails_leaves_the_file_as_it_was(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = Accounts.load(path)
    accounts.create("orders")
    before = Path(path).read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(AccountsRefused, match="cannot be written: No space left on device"):
        accounts.create("billing")
    assert (Path(path).read_bytes(), os.listdir(os.path.dirname(path))) == (before, ["accounts.json"])
    assert [one.name for one in accounts] == ["orders"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not JSON: Expecting value at line 1, column 1"),
        (one_key()[:-1], "is not JSON: Expecting ',' delimiter at line 1, column 164"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "the file must be an object"),
        ("{}", "format must be 1; a newer version of Dovetail may have written it"),
        ('{"format": 2, "accounts": []}', "format must be 1; a newer version of Dovetail may have written it"),
        ('{"format": 1}', "accounts must be a list"),
        ('{"format": 1, "accounts": [], "x": 1}', "the file: there is no field 'x'; there are accounts, format"),
        ('{"format": 1, "accounts": [{"id": "12"}]}', "accounts[0].id: an account's id is twelve digits"),
        (one_key(secret="short"), "accounts[0].keys[0].secret: a secret has 8 to 128 printable characters without blanks"),
        (one_key(id="no blanks"), "accounts[0].keys[0].id: an access key id has 3 to 128 letters, digits and _"),
        (one_key(enabled="yes"), "accounts[0].keys[0].enabled: must be true or false"),
        (one_key(expires_s=-1), "accounts[0].keys[0].expires_s: must be a whole number from 0 to 1152921504606846976"),
        (one_key(session_token=5), "accounts[0].keys[0].session_token: a session token has 8 to 2048 printable characters without blanks"),
        (
            json.dumps({"format": 1, "accounts": [{"id": "1" * 12, "name": "a"}, {"id": "2" * 12, "name": "a"}]}),
            "accounts[1]: name a is there twice, see accounts[0]",
        ),
    ],
)
def test_a_damaged_file_is_refused_with_its_exact_problem(path: str, text: str, problem: str) -> None:
    write(path, text)
    for use in (Accounts.load, lambda path: Accounts(path).create("orders")):
        with pytest.raises(AccountsRefused) as caught:
            use(path)
        assert str(caught.value) == f"{path}: {problem}"
    assert Path(path).read_text() == text


def test_a_file_that_is_too_large_or_no_file_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, one_key())
    monkeypatch.setattr(module, "FILE_BYTES_MAX", len(one_key()))
    Accounts.load(path)
    monkeypatch.setattr(module, "FILE_BYTES_MAX", len(one_key()) - 1)
    with pytest.raises(AccountsRefused, match="is larger than"):
        Accounts.load(path)
    os.mkfifo(f"{path}.pipe")
    for other in (os.path.dirname(path), f"{path}.pipe"):
        with pytest.raises(AccountsRefused, match="is not a file"):
            Accounts.load(other)


def test_a_running_node_sees_new_and_revoked_keys(path: str) -> None:
    node, command = Accounts.load(path), Accounts.load(path)
    assert node.reload_if_changed() is False
    command.create("orders")
    key = command.add_key("orders", NOW_S)
    assert node.find(key.access_key_id) is None
    assert (node.reload_if_changed(), node.reload_if_changed()) == (True, False)
    assert node.find(key.access_key_id) == key
    command.set_enabled(key.access_key_id, False)
    assert node.reload_if_changed() is True
    assert node.find(key.access_key_id) is None
    assert command.reload_if_changed() is False, "its own change is none"


def test_a_node_keeps_its_accounts_when_the_file_is_damaged_or_gone_and_says_so_once(path: str, caplog: pytest.LogCaptureFixture) -> None:
    node = Accounts.load(path)
    node.create("orders")
    key = node.add_key("orders", NOW_S)
    good = Path(path).read_text()
    with caplog.at_level(logging.ERROR, "dovetail.accounts"):
        write(path, good[:-20])
        assert [node.reload_if_changed() for _ in range(3)] == [False] * 3
        write(path, good, 0o644)
        assert [node.reload_if_changed() for _ in range(3)] == [False] * 3
        os.unlink(path)
        assert [node.reload_if_changed() for _ in range(3)] == [False] * 3
    assert node.find(key.access_key_id) == key
    told = [record.getMessage().removeprefix("the accounts stay as they were: ") for record in caplog.records]
    assert len(told) == 3 and "is not JSON" in told[0] and "chmod 600" in told[1] and told[2] == f"{path} is gone"
    assert key.secret not in caplog.text
    write(path, good)
    assert node.reload_if_changed() is True


def test_the_environment_gives_a_container_its_key(path: str) -> None:
    environment = {ENVIRONMENT_KEY_ID: "container", ENVIRONMENT_SECRET: "container-secret"}
    for file in (None, path):
        accounts = Accounts.load(file, environment, "123456789012")
        key = Key("container", "123456789012", "container-secret")
        assert (accounts.find("container"), len(accounts), accounts.reload_if_changed()) == (key, 1, False)
    with pytest.raises(BadRequest, match="there is no file of accounts to change"):
        Accounts.load(None, environment).create("orders")
    accounts.create("orders", "123456789012")
    added = accounts.add_key("orders", NOW_S)
    account = accounts.account("123456789012")
    assert account == Account("123456789012", "orders", keys=(added, key)), "the key of the environment joins the account of the file"
    assert "container" not in Path(path).read_text()


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({ENVIRONMENT_KEY_ID: "container"}, "DOVETAIL_ACCESS_KEY_ID and DOVETAIL_SECRET_ACCESS_KEY are set together or not at all"),
        ({ENVIRONMENT_SECRET: "container-secret"}, "DOVETAIL_ACCESS_KEY_ID and DOVETAIL_SECRET_ACCESS_KEY are set together or not at all"),
        (
            {ENVIRONMENT_KEY_ID: "", ENVIRONMENT_SECRET: "container-secret"},
            "DOVETAIL_ACCESS_KEY_ID: an access key id has 3 to 128 letters, digits and _",
        ),
        (
            {ENVIRONMENT_KEY_ID: "container", ENVIRONMENT_SECRET: "hunter2"},
            "DOVETAIL_SECRET_ACCESS_KEY: a secret has 8 to 128 printable characters without blanks",
        ),
    ],
)
def test_an_environment_that_is_half_set_or_wrong_is_refused_without_its_secret(environment: dict[str, str], text: str) -> None:
    with pytest.raises(AccountsRefused) as caught:
        Accounts.load(None, environment)
    assert str(caught.value) == text


def test_secrets_are_in_no_repr(path: str) -> None:
    accounts = Accounts.load(path)
    accounts.create("orders")
    key = accounts.add_key("orders", NOW_S, 60)
    shown = repr([accounts, list(accounts), key])
    assert key.access_key_id in shown and key.secret not in shown and str(key.session_token) not in shown


def test_two_commands_at_once_both_take_effect(path: str) -> None:
    failures = []

    def create(number: int) -> None:
        try:
            for step in range(5):
                Accounts.load(path).create(f"account-{number}-{step}")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, len(Accounts.load(path))) == ([], 20)


def test_without_the_lock_a_change_made_meanwhile_would_be_lost(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Accounts.load(path).create("first")
    real_write = module._write

    def race(mine: str, others: str, wait_s: float | None) -> set[str]:
        """Somebody comes between our reading and our writing; we wait for them, or only a little where they wait for us."""
        other = threading.Thread(target=lambda: Accounts.load(path).create(others))

        def write_after_another(*given: object) -> None:
            monkeypatch.setattr(module, "_write", real_write)
            other.start()
            other.join(wait_s)
            real_write(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(module, "_write", write_after_another)
        Accounts.load(path).create(mine)
        other.join()
        return {one.name for one in Accounts.load(path)}

    assert race("mine", "theirs", 0.05) == {"first", "mine", "theirs"}
    monkeypatch.setattr(module.fcntl, "flock", lambda *_: None)
    assert race("mine-again", "theirs-again", None) == {"first", "mine", "theirs", "mine-again"}


def test_accounts_lie_beside_the_log_of_a_data_folder() -> None:
    assert path_beside("local:./data") == "./data/accounts.json"
    assert path_beside("memory:") is None


@settings(deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=4), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_nothing_but_a_refusal_comes_of_junk(tree: object) -> None:
    for data in (tree, {"format": 1, "accounts": tree}, {"format": 1, "accounts": [{"id": "1" * 12, "name": "a", "keys": tree}]}):
        try:
            module._decode(json.dumps(data).encode())
        except ValueError:
            pass
