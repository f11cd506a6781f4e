"""Pipelines that people run: `dovetail pipeline run NAME`. Each is one short file: plain functions on Arrow or files, which tests call
without a JVM, and a `run` that puts Spark around them.

This file knows their names and loads none of them: `dovetail pipeline list` needs no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple

from dovetail.errors import BadRequest

PIPELINES: Mapping[str, str] = {
    "archive": "queues to Parquet or Delta, by queue and hour, exactly once for every reader",
    "compact": "small files of an archive put together into larger ones, beside writers and readers",
    "replay": "an archive back into a queue, by time and group; run again, it goes on where it was",
    "enrich": "messages through a function of one's own, into a queue and a table, exactly once; failures set apart",
    "dead-letters": "why messages failed, which they are, and chosen ones back where they came from",
    "measure": "how consistent and how fast queues are, from traces of clients or from the node's facts; live, or over all there is",
    "devices": "telemetry by the time it was measured: windows, late readings apart, silent devices, and what is usual",
    "usage": "what accounts and queues use by the hour, and when to add or remove nodes",
}


class Setting(NamedTuple):
    default: str | None
    """None: it has to be given."""
    doc: str
    truth: bool = False
    """A flag without a value; it says true."""


Settings = dict[str, str]
Say = Callable[[str], None]


class Pipeline(NamedTuple):
    settings: Mapping[str, Setting]
    run: Callable[[Settings, Say], None]
    """`say` is told a line of progress now and then."""

    def checked(self, said: Mapping[str, str]) -> Settings:
        for name in said:
            if name not in self.settings:
                raise BadRequest(f"there is no setting {name!r}; there are {', '.join(self.settings)}")
        missing = [name for name, setting in self.settings.items() if setting.default is None and name not in said]
        if missing:
            raise BadRequest(f"missing: {', '.join(missing)}")
        for name, setting in self.settings.items():
            if setting.truth and said.get(name, "") not in ("", "true", "false"):
                raise BadRequest(f"{name}: true or false, not {said[name]!r}")
        return {name: said.get(name, setting.default or "") for name, setting in self.settings.items()}


def find(name: str) -> Pipeline:
    if name not in PIPELINES:
        raise BadRequest(f"there is no pipeline {name!r}; there are {', '.join(PIPELINES)}")
    return load(name)


def load(name: str) -> Pipeline:
    """The file of that name, also one that is a command of its own and no pipeline (`dovetail export`)."""
    made: Pipeline = import_module(f"{__name__}.{name.replace('-', '_')}").PIPELINE
    return made


SOURCE = {
    "endpoint": Setting("dovetail://127.0.0.1:9325", "the node's native door; several addresses with commas"),
    "queue": Setting(None, "a queue, several with commas, or a pattern with *"),
    "namespace": Setting("", "the namespace of the queues, if not one's own"),
    "key": Setting("", "access key; or DOVETAIL_ACCESS_KEY_ID (and the secret in DOVETAIL_SECRET_ACCESS_KEY)"),
}
READING = {
    "mode": Setting("tap", "tap: all that is pushed; reserve: take messages from the queue, beside its other consumers"),
    "reservation": Setting("", "with --mode reserve, in place of the tap: under which name messages are set aside; one for each pipeline"),
}


def number_of(settings: Settings, name: str, least: int = 1) -> int:
    try:
        value = int(settings[name])
    except ValueError:
        value = least - 1
    if value < least:
        raise BadRequest(f"{name}: a whole number, {least} or more, not {settings[name]!r}")
    return value


def name_of(settings: Settings) -> str:
    """Of its tap or its reservation: it names the pipeline's checkpoint and files, too."""
    mode, reservation = settings["mode"], settings["reservation"]
    if mode not in ("tap", "reserve"):
        raise BadRequest(f"mode: tap or reserve, not {mode!r}")
    if bool(reservation) != (mode == "reserve"):
        raise BadRequest("mode reserve and a reservation go together")
    return reservation or settings["tap"]


def source_of(settings: Settings) -> Settings:
    """What of a pipeline's settings are options of the source."""
    return {name: settings[name] for name in SOURCE if settings[name]}
