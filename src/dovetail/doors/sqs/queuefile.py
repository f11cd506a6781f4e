"""A file of queues: TOML that a person writes, made so whenever the node starts. What the file does not name is left alone.

    account = "000000000000"              optional, for all queues of the file; so is region
    [queues.orders]
    visibility_timeout = 60               seconds, or "90s", "5m", "12h", "4d"
    dead_letter = "orders-dead"           a queue of this file, in any order, or one that exists
    max_receives = 5
    tags = { team = "shop" }
    [queues."bills.fifo"]                 the name makes it a FIFO queue
    ContentBasedDeduplication = true      SQS's own names are as good

A file is read and checked before anything is made, and every complaint names the file, the queue and the key. What an attribute may be
is queueattributes.py's business, and making a queue is queues.py's: this file only asks them.
"""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.doors.http.message import Request
from dovetail.doors.sqs import errors, queues, shapes, tags
from dovetail.doors.sqs import queueattributes as qa
from dovetail.doors.sqs.calls import Call, Caller
from dovetail.doors.sqs.errors import SqsError
from dovetail.doors.sqs.policy import PolicyRefused, parse
from dovetail.doors.sqs.queueattributes import Arn
from dovetail.errors import BadRequest, DovetailError

if TYPE_CHECKING:
    from dovetail.doors.sqs.door import Door

_logger = logging.getLogger("dovetail.sqs")

FILE_BYTES_MAX = 4 << 20
QUEUES_MAX = 10_000
RECEIVES_DEFAULT = 10
"""As SQS has it where a redrive policy names no count."""

SETTABLE = tuple(name for name in qa.ALL if name not in qa.READ_ONLY)
SHORT = {
    "delay": "DelaySeconds",
    "retention": "MessageRetentionPeriod",
    "receive_wait": "ReceiveMessageWaitTimeSeconds",
    "max_message_size": "MaximumMessageSize",
}
"""Beside SQS's own names and the same in small letters (visibility_timeout)."""
KEYS: dict[str, str] = (
    {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): name for name in SETTABLE} | {name: name for name in SETTABLE} | SHORT
)
OURS = ("dead_letter", "max_receives", "tags")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_BYTES = {"KiB": 1 << 10, "MiB": 1 << 20}


class Wanted(NamedTuple):
    """One queue as the file wants it."""

    name: str
    attributes: dict[str, str]
    keys: dict[str, str]
    """Attribute → the key under which the file has it, for complaints."""
    tags: dict[str, str]


class QueueFile(NamedTuple):
    source: str
    """What complaints call the file."""
    account: str
    region: str
    queues: dict[str, Wanted]

    def bad(self, queue: str, key: str, text: str) -> BadRequest:
        return BadRequest(f"{self.source}: [queues.{_bare(queue)}]{' ' if key else ''}{key}: {text}")


def read(source: str | Mapping[str, Any], account: str, region: str, beyond: bool) -> QueueFile:
    """A file by its path, or its content from Python, checked. `account` and `region` are for content that names none."""
    if isinstance(source, str):
        return _parse(_load(source), source, account, region, beyond)
    return _parse(source, "queues", account, region, beyond)


def _load(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
        if len(text) > FILE_BYTES_MAX:
            raise BadRequest(f"{path}: is larger than {FILE_BYTES_MAX} bytes")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"{path}: is not TOML: {error}") from None


def _parse(tree: Mapping[str, Any], source: str, account_default: str, region_default: str, beyond: bool) -> QueueFile:
    for key in tree:
        if key not in ("account", "region", "queues"):
            raise BadRequest(f"{source}: {key}: there is no such key; at the top are account, region and tables such as [queues.orders]")
    account, region = tree.get("account", account_default), tree.get("region", region_default)
    if not isinstance(account, str) or not re.fullmatch(r"[0-9]{12}", account):
        raise BadRequest(f'{source}: account: must be twelve digits in quotes, such as "000000000000"')
    if not isinstance(region, str) or not re.fullmatch(r"[a-z0-9-]{1,32}", region):
        raise BadRequest(f'{source}: region: must be a region such as "us-east-1"')
    tables = tree.get("queues", {})
    if not isinstance(tables, Mapping):
        raise BadRequest(f"{source}: queues: must be tables, such as [queues.orders]")
    if len(tables) > QUEUES_MAX:
        raise BadRequest(f"{source}: has {len(tables)} queues; {QUEUES_MAX} are allowed")
    file = QueueFile(source, account, region, {})
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise file.bad(name, "", f"must be a table: [queues.{_bare(name)}]")
        if not _NAME.fullmatch(name):
            raise file.bad(name, "", "a name has 1 to 80 letters, digits, hyphens or underscores, and .fifo at the end of a FIFO queue's")
        file.queues[name] = _wanted(file, name, table, beyond)
    return file


def _bare(name: str) -> str:
    """As TOML writes it."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name[:100])


def _wanted(file: QueueFile, name: str, table: Mapping[str, Any], beyond: bool) -> Wanted:
    fifo = name.endswith(".fifo")
    one = Wanted(name, {}, {}, {})
    for key, value in table.items():
        if key in OURS:
            continue
        try:
            attribute, text = attribute_of(key, value, fifo, beyond)
        except ValueError as error:
            raise file.bad(name, key, str(error)) from None
        if attribute in one.keys:
            raise file.bad(name, key, f"is the same as {one.keys[attribute]}, which is there too")
        one.attributes[attribute], one.keys[attribute] = text, key
    if fifo:
        one.attributes["FifoQueue"] = "true"
    _dead_letter(file, one, table)
    return one._replace(tags=_tags(file, name, table))


def attribute_of(key: str, value: object, fifo: bool, beyond: bool) -> tuple[str, str]:
    """An attribute and its value as SQS has them, of a key and a value as people write them; ValueError says what is wrong."""
    attribute = KEYS.get(key)
    if attribute is None:
        raise ValueError(f"there is no such key; there are {', '.join(sorted((*KEYS.keys() - SETTABLE, *OURS)))}")
    if attribute in qa.FIFO_ONLY and not fifo:
        raise ValueError("belongs to a FIFO queue, whose name ends with .fifo")
    text = _text(attribute, value)
    try:
        if text is None:
            raise SqsError(errors.ATTRIBUTE_VALUE)
        qa.checked({attribute: text}, fifo=fifo, creating=True, beyond=beyond)
    except SqsError:
        raise ValueError(f"{_shown(value)}: {_rule(attribute, beyond)}") from None
    try:
        _check_document(attribute, text)
    except (SqsError, PolicyRefused) as error:
        raise ValueError(str(error)) from None
    return attribute, text


def _text(attribute: str, value: object) -> str | None:
    """A value as SQS writes it; None where it cannot be one."""
    if isinstance(value, bool):
        return None if attribute in qa.NUMBERS else str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping) and attribute in qa.TEXTS:
        return json.dumps(value, separators=(",", ":"))
    if not isinstance(value, str):
        return None
    units = {} if attribute not in qa.NUMBERS else _BYTES if attribute == "MaximumMessageSize" else _SECONDS
    match = re.fullmatch(r"([0-9]{1,9}) ?([A-Za-z]+)", value)
    return str(int(match[1]) * units[match[2]]) if match is not None and match[2] in units else value


def _check_document(attribute: str, text: str) -> None:
    if not text:
        return  # It removes the attribute.
    if attribute == "Policy":
        parse(text)
    elif attribute == "RedrivePolicy":
        qa.redrive_policy(text)
    elif attribute == "RedriveAllowPolicy":
        qa.redrive_allow_policy(text)


def _rule(attribute: str, beyond: bool) -> str:
    """What the attribute may be, for whoever wrote something else."""
    if attribute in qa.NUMBERS:
        number = qa.NUMBERS[attribute]
        most = qa.BEYOND.get(attribute, number.most) if beyond else number.most
        unit, such = ("bytes", "256KiB") if attribute == "MaximumMessageSize" else ("seconds", "90s, 5m, 12h or 4d")
        return f"must be {number.least} to {most} {unit}, as a whole number or as {such}"
    if attribute in qa.CHOICES:
        return f"must be {' or '.join(qa.CHOICES[attribute])}"
    return "must be a text" if attribute == "KmsMasterKeyId" else "must be a table, or a text with JSON"


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _dead_letter(file: QueueFile, one: Wanted, table: Mapping[str, Any]) -> None:
    """`dead_letter` and `max_receives` are a redrive policy in plain words."""
    target, count = table.get("dead_letter"), table.get("max_receives")
    if target is None:
        if count is not None:
            raise file.bad(one.name, "max_receives", "says after how many receives a message goes to dead_letter, which is missing")
        return
    if "RedrivePolicy" in one.keys:
        raise file.bad(one.name, "dead_letter", f"is the same as {one.keys['RedrivePolicy']}, which is there too")
    if not isinstance(target, str) or not _NAME.fullmatch(target):
        raise file.bad(one.name, "dead_letter", f"{_shown(target)}: must be the name of a queue")
    if target == one.name:
        raise file.bad(one.name, "dead_letter", "a queue cannot be its own dead-letter queue")
    if target.endswith(".fifo") != one.name.endswith(".fifo"):
        raise file.bad(one.name, "dead_letter", f"{target!r}: a FIFO queue has a FIFO dead-letter queue, and a standard one a standard one")
    if count is not None and (type(count) is not int or not 1 <= count <= qa.RECEIVES_MAX):
        raise file.bad(one.name, "max_receives", f"{_shown(count)}: must be a whole number of 1 to {qa.RECEIVES_MAX}")
    arn = str(Arn(file.region, file.account, target))
    policy = {"deadLetterTargetArn": arn, "maxReceiveCount": RECEIVES_DEFAULT if count is None else count}
    one.attributes["RedrivePolicy"], one.keys["RedrivePolicy"] = json.dumps(policy, separators=(",", ":")), "dead_letter"


def _tags(file: QueueFile, name: str, table: Mapping[str, Any]) -> dict[str, str]:
    given = table.get("tags", {})
    if not isinstance(given, Mapping) or not all(isinstance(key, str) and isinstance(value, str) for key, value in given.items()):
        raise file.bad(name, "tags", 'must be texts by name, such as { team = "shop" }')
    try:
        return dict(queues.check_tags(given))
    except SqsError as error:
        raise file.bad(name, "tags", error.text) from None


async def make(door: Door, file: QueueFile) -> None:
    """Make what is missing and set what differs. Redrive policies come last, when every queue that one could name is there."""
    caller = Caller(file.account, file.region, "", False)
    call = Call(door, "SetQueueAttributes", caller, "http://queuefile", "queuefile", Request("POST", b"/", {}, b"", True))
    for one in file.queues.values():
        _check_target(call, file, one)
    for one in file.queues.values():
        await _told(file, one, _make(call, file, one))
    for one in file.queues.values():
        if "RedrivePolicy" in one.attributes:
            await _told(file, one, _set(call, file, one, ("RedrivePolicy",)))


def _check_target(call: Call, file: QueueFile, one: Wanted) -> None:
    if one.attributes.get("RedrivePolicy"):
        target = qa.redrive_policy(one.attributes["RedrivePolicy"]).target
        here = (target.account, target.region) == (file.account, file.region)
        if here and target.name not in file.queues and call.door.broker.catalog.find(call.namespace, target.name) is None:
            text = f"{target.name!r}: there is no such queue, neither in this file nor in the node"
            raise file.bad(one.name, one.keys["RedrivePolicy"], text)


async def _make(call: Call, file: QueueFile, one: Wanted) -> None:
    if call.door.broker.catalog.find(call.namespace, one.name) is not None:
        await _set(call, file, one, tuple(name for name in one.attributes if name not in ("RedrivePolicy", "FifoQueue")))
        return
    first = {name: value for name, value in one.attributes.items() if name != "RedrivePolicy"}
    await queues.create_queue(call, shapes.CreateQueue(one.name, first, one.tags))
    _logger.info("%s: queue %s is made", file.source, one.name)


async def _set(call: Call, file: QueueFile, one: Wanted, names: tuple[str, ...]) -> None:
    lane = call.lane(one.name)
    have = qa.shown(lane.attributes)
    changed = {name: one.attributes[name] for name in names if not _same(name, have.get(name, ""), one.attributes[name])}
    if changed:
        await queues.set_queue_attributes(call, shapes.SetQueueAttributes(one.name, changed))
        told = ", ".join(f"{name} {have.get(name) or 'none'} → {value or 'none'}" for name, value in changed.items())
        _logger.info("%s: queue %s is changed: %s", file.source, one.name, told)
    if not one.tags.items() <= qa.tags_of(lane.attributes).items():
        await tags.tag_queue(call, shapes.TagQueue(one.name, one.tags))
        _logger.info("%s: queue %s has new tags", file.source, one.name)


def _same(name: str, have: str, wanted: str) -> bool:
    """Documents are the same whatever their spaces and the order of their keys."""
    if have == wanted or name not in qa.TEXTS or not have or not wanted:
        return have == wanted
    try:
        return bool(json.loads(have) == json.loads(wanted))
    except ValueError:
        return False


async def _told(file: QueueFile, one: Wanted, work: Awaitable[None]) -> None:
    try:
        await work
    except (SqsError, DovetailError) as error:
        key = next((key for attribute, key in one.keys.items() if attribute in str(error)), "")
        raise file.bad(one.name, key, str(error)) from error
