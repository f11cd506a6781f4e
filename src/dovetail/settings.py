"""Every setting, declared once. Flags, environment names and the keys of the TOML file derive from it; nothing else lists them.

    declared            flag                      environment                      TOML
    http                --http                    DOVETAIL_HTTP                    http = "127.0.0.1:9324"
    local.segment_bytes --local-segment-bytes     DOVETAIL_LOCAL_SEGMENT_BYTES     [local] segment_bytes = "64MiB"

A flag wins over the environment, the environment over the file, the file over the default. This file reads no environment and opens
nothing but the TOML file that it is pointed to; it knows what a value means and not what it is used for.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from .errors import BadRequest
from .limits import SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MIN

T = TypeVar("T")

ENVIRONMENT_PREFIX = "DOVETAIL_"
CONFIG_ENVIRONMENT = "DOVETAIL_CONFIG"
OTHER_ENVIRONMENT = ("DOVETAIL_ACCESS_KEY_ID", "DOVETAIL_SECRET_ACCESS_KEY", "DOVETAIL_ENDPOINT")
"""Ours and no settings: a key for containers (a setting is printed, a secret is not), and where `dovetail queue` finds a node."""
LAB_PREFIX = "DOVETAIL_LAB_"
"""Names of the lab's own, which no node reads."""


class Address(NamedTuple):
    """Where a door listens. An empty host is a door that stays shut (`off`)."""

    host: str
    port: int

    @property
    def off(self) -> bool:
        return not self.host

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than localhost is not looked up and counts as reachable."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        if self.off:
            return "off"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


OFF = Address("", 0)


class Kind(ABC, Generic[T]):
    """What a setting's text means. `read` turns text into a value, `check` holds it to its rule; both raise ValueError with the rule."""

    metavar = "VALUE"

    @abstractmethod
    def read(self, text: str) -> T: ...

    def check(self, value: T) -> None:
        return None

    def show(self, value: T) -> str:
        return str(value)


class Choice(Kind[str]):
    def __init__(self, *words: str) -> None:
        self.words = words
        self.metavar = "|".join(words)

    def read(self, text: str) -> str:
        return text

    def check(self, value: str) -> None:
        if value not in self.words:
            raise ValueError(f"must be one of {', '.join(self.words)}")


class Text(Kind[str]):
    def __init__(self, metavar: str, pattern: str, rule: str) -> None:
        self.metavar, self.pattern, self.rule = metavar, re.compile(pattern), rule

    def read(self, text: str) -> str:
        return text

    def check(self, value: str) -> None:
        if not self.pattern.fullmatch(value):
            raise ValueError(self.rule)

    def show(self, value: str) -> str:
        """The user and password of a URL are nobody's business."""
        return re.sub(r"//[^@/]*@", "//***@", value)


class Listen(Kind[Address]):
    metavar = "HOST:PORT|off"
    rule = "must be HOST:PORT with a port of 0 to 65535 (0 takes a free one), [ADDRESS]:PORT for IPv6, or off"

    def read(self, text: str) -> Address:
        if text == "off":
            return OFF
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]/]+)):(\d{1,5})", text)
        if match is None:
            raise ValueError(self.rule)
        return Address(match[1] or match[2], int(match[3]))

    def check(self, value: Address) -> None:
        if not 0 <= value.port <= 65_535:
            raise ValueError(self.rule)


class Bytes(Kind[int]):
    metavar = "BYTES"
    units: ClassVar = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def read(self, text: str) -> int:
        match = re.fullmatch(r"(\d{1,15})\s*(|B|KiB|MiB|GiB)", text)
        if match is None:
            raise ValueError("must be a number of bytes such as 67108864, 64MiB or 1GiB")
        return int(match[1]) * self.units[match[2]]

    def check(self, value: int) -> None:
        if not self.least <= value <= self.most:
            raise ValueError(f"must be between {self.show(self.least)} and {self.show(self.most)}")

    def show(self, value: int) -> str:
        for unit in ("GiB", "MiB", "KiB"):
            if value and value % self.units[unit] == 0:
                return f"{value // self.units[unit]}{unit}"
        return str(value)


class Whole(Kind[int]):
    metavar = "NUMBER"

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most
        self.rule = f"must be a whole number between {least} and {most}"

    def read(self, text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text):
            raise ValueError(self.rule)
        return int(text)

    def check(self, value: int) -> None:
        if not self.least <= value <= self.most:
            raise ValueError(self.rule)


class Seconds(Kind[float]):
    metavar = "SECONDS"

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most
        self.rule = f"must be a number of seconds between {least:g} and {most:g}"

    def read(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(self.rule) from None

    def check(self, value: float) -> None:
        if not self.least <= value <= self.most:  # also refuses nan
            raise ValueError(self.rule)

    def show(self, value: float) -> str:
        return f"{value:g}"


def setting(default: T, kind: Kind[T], doc: str) -> T:
    """One declaration."""
    made: T = field(default=default, metadata={"kind": kind, "doc": doc})
    return made


class Checked:
    """A group of settings; also when it is made in Python no value escapes its rule."""

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            if "kind" in one.metadata:
                try:
                    one.metadata["kind"].check(getattr(self, one.name))
                except (ValueError, TypeError) as error:
                    raise BadRequest(f"{one.name}={getattr(self, one.name)!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class Local(Checked):
    """The commit log of `local:DIR`."""

    segment_bytes: int = setting(
        SEGMENT_BYTES_DEFAULT, Bytes(SEGMENT_BYTES_MIN, 1 << 30), "size of one file of the commit log, reserved on disk when it is begun"
    )
    snapshot_bytes: int = setting(
        256 << 20, Bytes(1 << 20, 1 << 40), "log written between two snapshots: a restart replays at most about this much"
    )
    sync: str = setting(
        "auto",
        Choice("auto", "inline", "thread", "kernel"),
        "where fdatasync runs; auto follows what it sees: inline when fast and few wait, else the kernel's workers or a thread",
    )


@dataclass(frozen=True, slots=True)
class Shared(Checked):
    """Stores whose log other nodes write to as well (nats://, kafka://)."""

    cache: str = setting(
        "",
        Text("FOLDER", r".*", "must be a folder"),
        "where a node keeps a copy of the log that it can throw away; without it the temp folder",
    )
    snapshot_bytes: int = setting(
        256 << 20, Bytes(1 << 20, 1 << 40), "log written between two snapshots: a node that joins applies at most about this much"
    )


@dataclass(frozen=True, slots=True)
class Log(Checked):
    """The node's own log lines, on stderr."""

    level: str = setting("info", Choice("debug", "info", "warning", "error"), "the least important line that is written")
    format: str = setting("text", Choice("text", "json"), "key=value text for people, json for collectors")


@dataclass(frozen=True, slots=True)
class Tls(Checked):
    """TLS of both doors. New files are read without a restart."""

    cert: str = setting("", Text("FILE", r".*", "must be a file"), "the certificate and its chain, PEM")
    key: str = setting("", Text("FILE", r".*", "must be a file"), "the certificate's private key, PEM")


@dataclass(frozen=True, slots=True)
class Sqs(Checked):
    """The SQS door."""

    region: str = setting(
        "us-east-1", Text("NAME", r"[a-z0-9-]{1,32}", "must be a region such as us-east-1"), "the region of calls that name none"
    )
    beyond: str = setting(
        "off", Choice("on", "off"), "allow what SQS does not: larger batches, delays and leases without limit (docs/beyond-sqs.md)"
    )


@dataclass(frozen=True, slots=True)
class QuotaDefaults(Checked):
    """What every queue may have, and every account for which `dovetail account quota` says nothing else; 0 is no limit.
    What is staged belongs to no queue yet, and is bounded for all together."""

    queue_messages: int = setting(0, Whole(0, 1 << 50), "messages that may wait in one queue; 0 is no limit")
    queue_bytes: int = setting(0, Bytes(0, 1 << 60), "bytes that may wait in one queue; 0 is no limit")
    queue_requests: int = setting(0, Whole(0, 1 << 40), "requests a second about one queue; 0 is no limit")
    account_requests: int = setting(0, Whole(0, 1 << 40), "requests a second of one account; 0 is no limit")
    account_queues: int = setting(0, Whole(0, 1 << 40), "queues of one account; 0 is no limit")
    staged_bytes: int = setting(
        16 << 30, Bytes(0, 1 << 60), "bytes in stages that were not published yet, of all accounts together; 0 is no limit"
    )


@dataclass(frozen=True, slots=True)
class Settings(Checked):
    """All of them. Each default is what a person at a laptop wants."""

    store: str = setting(
        "local:./data",
        Text("URL", r"[a-z][a-z0-9+]*:\S*", "must be a store such as local:./data, memory: or nats://127.0.0.1:4222/shop"),
        "where messages are kept",
    )
    http: Address = setting(Address("127.0.0.1", 9324), Listen(), "the HTTP door: health, metrics, and the protocols over HTTP")
    native: Address = setting(Address("127.0.0.1", 9325), Listen(), "the native door: batches, consumers that stay connected, taps")
    auth: str = setting(
        "open", Choice("open", "signed", "any"), "who may call: everyone on this machine, accounts that sign, every key from anywhere"
    )
    account: str = setting("000000000000", Text("ID", r"\d{12}", "must be twelve digits"), "the account of calls that name none")
    accounts: str = setting("", Text("FILE", r".*", "must be a file"), "accounts and keys; without it accounts.json in the data folder")
    cooldowns: str = setting("on", Choice("on", "off"), "keep SQS's two 60-second rules (after a delete, after a purge)")
    advertise: str = setting("", Text("HOST", r"[^\s/]*", "must be a host name"), "the name by which others reach this node")
    queues: str = setting("", Text("FILE", r".*", "must be a file"), "queues to make at start: a TOML file")
    audit: str = setting("", Text("FILE", r".*", "must be a file"), "where administrative acts are noted; without it among the log lines")
    drain_s: float = setting(10.0, Seconds(0, 3600), "how long a stopping node waits for calls under way")
    sqs: Sqs = field(default_factory=Sqs)
    tls: Tls = field(default_factory=Tls)
    quota: QuotaDefaults = field(default_factory=QuotaDefaults)
    local: Local = field(default_factory=Local)
    shared: Shared = field(default_factory=Shared)
    log: Log = field(default_factory=Log)


class Declared(NamedTuple):
    """One setting as it was declared, with the names that derive from it."""

    name: str
    default: Any
    kind: Kind[Any]
    doc: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace(".", "-").replace("_", "-")

    @property
    def environment(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper()


def declared(group: type[Any] = Settings, prefix: str = "") -> Iterator[Declared]:
    """Every setting, in the order in which it was declared."""
    for one in fields(group):
        group_below: Any = one.default_factory
        if isinstance(group_below, type) and issubclass(group_below, Checked):
            yield from declared(group_below, prefix + one.name + ".")
        else:
            yield Declared(prefix + one.name, one.default, **one.metadata)


class Loaded(NamedTuple):
    """The effective settings and, by name, where each came from."""

    settings: Settings
    sources: Mapping[str, str]
    unknown: Sequence[str]
    """Environment names that look like ours and are not; worth a warning, for a typing slip there is otherwise silent."""


def load(flags: Mapping[str, str | None], environment: Mapping[str, str], config: str | None = None) -> Loaded:
    """Put the four sources together. `flags` are by declared name; None is a flag that was not given."""
    config = config or environment.get(CONFIG_ENVIRONMENT) or None
    file = _file(Path(config)) if config else {}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    known = {CONFIG_ENVIRONMENT, *OTHER_ENVIRONMENT}
    for one in declared():
        known.add(one.environment)
        text: str | None
        if (text := flags.get(one.name)) is not None:
            source, told = one.flag, f"{one.flag} {text}"
        elif (text := environment.get(one.environment)) is not None:
            source, told = one.environment, f"{one.environment}={text}"
        elif (text := file.pop(one.name, None)) is not None:
            source, told = str(config), f'{config}: {one.name} = "{text}"'
        else:
            values[one.name], sources[one.name] = one.default, "default"
            continue
        file.pop(one.name, None)
        values[one.name] = _value(one, text, told)
        sources[one.name] = source
    if file:
        raise BadRequest(f"{config}: {next(iter(file))}: there is no such setting; `dovetail settings` lists them")
    ours = [name for name in environment if name.startswith(ENVIRONMENT_PREFIX) and not name.startswith(LAB_PREFIX)]
    unknown = sorted(name for name in ours if name not in known)
    return Loaded(_build(Settings, values, ""), sources, unknown)


def _value(one: Declared, text: str, told: str) -> Any:
    try:
        value = one.kind.read(text)
        one.kind.check(value)
    except ValueError as error:
        raise BadRequest(f"{told}: {error}") from None
    return value


def _build(group: type[Any], values: Mapping[str, Any], prefix: str) -> Any:
    made = {}
    for one in fields(group):
        group_below: Any = one.default_factory
        if isinstance(group_below, type) and issubclass(group_below, Checked):
            made[one.name] = _build(group_below, values, prefix + one.name + ".")
        else:
            made[one.name] = values[prefix + one.name]
    return group(**made)


def _file(path: Path) -> dict[str, str]:
    """The TOML file as text by declared name, so that a value means the same wherever it was written."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path}: is not TOML: {error}") from None
    flat: dict[str, str] = {}

    def walk(table: Mapping[str, Any], prefix: str) -> None:
        for key, value in table.items():
            if isinstance(value, Mapping):
                walk(value, prefix + key + ".")
            elif isinstance(value, bool):
                flat[prefix + key] = "on" if value else "off"
            elif isinstance(value, str | int | float):
                flat[prefix + key] = str(value)
            else:
                raise BadRequest(f"{path}: {prefix}{key}: must be one value, not {type(value).__name__}")

    walk(tree, "")
    return flat
