"""Promises of the settings: one declaration, four sources in a fixed order, and one clear line when a value breaks its rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import BadRequest
from dovetail.settings import OFF, Address, Local, Settings, declared, load


def test_without_any_source_every_setting_is_its_default_and_says_so() -> None:
    loaded = load({}, {})
    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}
    assert list(loaded.sources) == [one.name for one in declared()]


def test_a_flag_wins_over_the_environment_which_wins_over_the_file_which_wins_over_the_default(tmp_path: Path) -> None:
    config = tmp_path / "dovetail.toml"
    config.write_text('store = "memory:"\nhttp = "127.0.0.1:1"\ndrain_s = 3\n[local]\nsegment_bytes = 4194304\n[log]\nlevel = "error"\n')
    environment = {"DOVETAIL_HTTP": "127.0.0.1:2", "DOVETAIL_LOG_LEVEL": "warning"}
    loaded = load({"http": "127.0.0.1:3"}, environment, str(config))
    assert loaded.settings.http == Address("127.0.0.1", 3)
    assert loaded.settings.log.level == "warning"
    assert loaded.settings.store == "memory:"
    assert loaded.settings.drain_s == 3.0
    assert loaded.settings.local == Local(segment_bytes=4 << 20)
    assert loaded.sources["http"] == "--http"
    assert loaded.sources["log.level"] == "DOVETAIL_LOG_LEVEL"
    assert loaded.sources["store"] == str(config)
    assert loaded.sources["log.format"] == "default"


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    config = tmp_path / "dovetail.toml"
    config.write_text('store = "memory:"\n')
    assert load({}, {"DOVETAIL_CONFIG": str(config)}).settings.store == "memory:"


def test_names_derive_from_the_declaration() -> None:
    by_name = {one.name: one for one in declared()}
    assert by_name["local.segment_bytes"].flag == "--local-segment-bytes"
    assert by_name["local.segment_bytes"].environment == "DOVETAIL_LOCAL_SEGMENT_BYTES"
    assert len({one.flag for one in by_name.values()}) == len({one.environment for one in by_name.values()}) == len(by_name)
    assert all(one.doc for one in by_name.values())


@pytest.mark.parametrize("one", list(declared()), ids=lambda one: one.name)
def test_every_default_obeys_its_rule_and_survives_being_written_and_read(one) -> None:  # type: ignore[no-untyped-def]
    one.kind.check(one.default)
    assert one.kind.read(one.kind.show(one.default)) == one.default


@pytest.mark.parametrize(
    ("flags", "environment", "line"),
    [
        ({"http": "9324"}, {}, "--http 9324: must be HOST:PORT"),
        ({"http": "127.0.0.1:99999"}, {}, "--http 127.0.0.1:99999: must be HOST:PORT with a port of 0 to 65535"),
        ({}, {"DOVETAIL_LOG_LEVEL": "loud"}, "DOVETAIL_LOG_LEVEL=loud: must be one of debug, info, warning, error"),
        ({"local.segment_bytes": "1KiB"}, {}, "--local-segment-bytes 1KiB: must be between 2MiB and 1GiB"),
        ({"local.segment_bytes": "big"}, {}, "--local-segment-bytes big: must be a number of bytes such as"),
        ({"drain_s": "nan"}, {}, "--drain-s nan: must be a number of seconds between 0 and 3600"),
        ({"store": "data"}, {}, "--store data: must be a store such as local:./data, memory: or nats://127.0.0.1:4222/shop"),
        ({"native": "9325"}, {}, "--native 9325: must be HOST:PORT"),
        ({"auth": "nobody"}, {}, "--auth nobody: must be one of open, signed, any"),
        ({"quota.queue_messages": "many"}, {}, "--quota-queue-messages many: must be a whole number between 0 and"),
    ],
)
def test_a_bad_value_is_one_line_that_names_its_source_and_the_rule(flags: dict[str, str], environment: dict[str, str], line: str) -> None:
    with pytest.raises(BadRequest) as caught:
        load(flags, environment)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_a_default_that_is_named_changes_nothing() -> None:
    flags = {"native": "127.0.0.1:9325", "auth": "open", "account": "000000000000", "cooldowns": "on"}
    assert load(flags, {}).settings == Settings()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nonsense = 1\n", "nonsense: there is no such setting"),
        ("[local]\nsegments = 1\n", "local.segments: there is no such setting"),
        ("store = [1]\n", "store: must be one value, not list"),
        ("store = \n", "is not TOML"),
        ("[log]\nlevel = 3\n", 'log.level = "3": must be one of'),
    ],
)
def test_a_bad_file_is_refused_with_its_name(tmp_path: Path, text: str, line: str) -> None:
    config = tmp_path / "dovetail.toml"
    config.write_text(text)
    with pytest.raises(BadRequest) as caught:
        load({}, {}, str(config))
    assert str(caught.value).startswith(f"{config}: {line}")


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        load({}, {}, "/nowhere/dovetail.toml")


def test_an_environment_name_that_is_nearly_ours_is_told() -> None:
    assert load({}, {"DOVETAIL_HTPP": "x", "DOVETAIL_LAB_DIR": "/tmp", "HOME": "/"}).unknown == ["DOVETAIL_HTPP"]


def test_settings_made_in_python_are_held_to_the_same_rules() -> None:
    with pytest.raises(BadRequest, match="segment_bytes=5: must be between"):
        Local(segment_bytes=5)


def test_addresses_know_whether_only_this_machine_can_reach_them() -> None:
    listen = next(one.kind for one in declared() if one.name == "http")
    assert listen.read("off") is OFF
    assert listen.read("[::1]:80") == Address("::1", 80)
    assert str(listen.read("[::1]:80")) == "[::1]:80"
    loopback = {
        text: listen.read(text).loopback for text in ("127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "0.0.0.0:1", "example:1")
    }
    assert [text for text, yes in loopback.items() if not yes] == ["0.0.0.0:1", "example:1"]


def test_a_password_in_a_store_is_never_shown() -> None:
    store = next(one.kind for one in declared() if one.name == "store")
    assert store.show("redis://user:secret@host:6379/0") == "redis://***@host:6379/0"
