"""Promises of a file of queues: what it says is so after every start, nothing else is touched, and a slip names file, queue and key."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.doors.sqs import Door, queuefile
from dovetail.doors.sqs import queueattributes as qa
from dovetail.errors import BadRequest
from dovetail.node import open as open_node
from dovetail.settings import Settings

PLACE = "000000000000/us-east-1"
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "queues.toml"


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with open_node("memory:") as node:
        yield node.sqs_door(Settings())


def shown(door: Door, name: str, place: str = PLACE) -> dict[str, str]:
    lane = door.broker.catalog.get(place, name)
    values = qa.shown(lane.attributes)
    return {key: value for key, value in values.items() if key not in (qa.CREATED, qa.MODIFIED)}


def names(door: Door) -> list[tuple[str, str]]:
    return sorted((place, name) for place, name, _ in door.broker.store.all_queues())


PLAIN = {
    "VisibilityTimeout": "30",
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
}
FIFO = {"FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}


async def test_the_example_makes_its_queues_as_it_says(door: Door) -> None:
    await door.make_queues(str(EXAMPLE))
    redrive = '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:orders-dead","maxReceiveCount":5}'
    assert names(door) == [(PLACE, name) for name in ("bills.fifo", "orders", "orders-dead", "reports")]
    assert shown(door, "orders") == PLAIN | {
        "VisibilityTimeout": "120",
        "ReceiveMessageWaitTimeSeconds": "20",
        "RedrivePolicy": redrive,
    }
    assert qa.tags_of(door.broker.catalog.get(PLACE, "orders").attributes) == {"team": "shop"}
    assert shown(door, "orders-dead") == PLAIN | {"MessageRetentionPeriod": "1209600"}
    assert shown(door, "bills.fifo") == PLAIN | FIFO | {"ContentBasedDeduplication": "true"}
    assert shown(door, "reports") == PLAIN | {"DelaySeconds": "10", "MaximumMessageSize": "262144"}


async def test_the_same_file_again_changes_nothing_and_says_nothing(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    await door.make_queues(str(EXAMPLE))
    before = {name: door.broker.catalog.get(place, name).attributes for place, name in names(door)}
    with caplog.at_level(logging.INFO, "dovetail.sqs"):
        await door.make_queues(str(EXAMPLE))
    assert caplog.messages == []
    assert {name: door.broker.catalog.get(place, name).attributes for place, name in names(door)} == before


async def test_a_queue_that_exists_gets_what_the_file_says_and_keeps_the_rest(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    await door.make_queues({"queues": {"orders": {"visibility_timeout": 60, "delay": 5, "tags": {"team": "shop"}}, "bystander": {}}})
    lane = door.broker.catalog.get(PLACE, "orders")
    await door.broker.push_bodies(lane, [b"kept"])
    caplog.clear()
    with caplog.at_level(logging.INFO, "dovetail.sqs"):
        await door.make_queues(
            {"queues": {"orders": {"visibility_timeout": 90, "dead_letter": "dead", "tags": {"at": "home"}}, "dead": {}}}
        )
    redrive = '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":10}'
    assert caplog.messages == [
        "queues: queue orders is changed: VisibilityTimeout 60 → 90",
        "queues: queue orders has new tags",
        "queues: queue dead is made",
        f"queues: queue orders is changed: RedrivePolicy none → {redrive}",
    ]
    assert shown(door, "orders") == PLAIN | {"VisibilityTimeout": "90", "DelaySeconds": "5", "RedrivePolicy": redrive}
    assert qa.tags_of(lane.attributes) == {"team": "shop", "at": "home"}
    assert lane.counts().delayed == 1
    assert shown(door, "bystander") == PLAIN


async def test_a_document_with_other_spaces_is_the_same_document(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    arn = "arn:aws:sqs:us-east-1:000000000000:dead"
    text = json.dumps({"maxReceiveCount": 3, "deadLetterTargetArn": arn}, indent=1)
    await door.make_queues({"queues": {"orders": {"RedrivePolicy": text}, "dead": {}}})
    caplog.clear()
    with caplog.at_level(logging.INFO, "dovetail.sqs"):
        await door.make_queues({"queues": {"orders": {"dead_letter": "dead", "max_receives": 3}}})
    assert caplog.messages == []


async def test_two_queues_may_be_each_others_dead_letter_queue(door: Door) -> None:
    await door.make_queues({"queues": {"ping": {"dead_letter": "pong"}, "pong": {"dead_letter": "ping"}}})
    found = {name: door.broker.catalog.get(PLACE, name) for name in ("ping", "pong")}
    assert found["ping"].attributes.dead_letter == found["pong"].queue
    assert found["pong"].attributes.dead_letter == found["ping"].queue


async def test_a_file_may_name_its_account_and_region(door: Door) -> None:
    await door.make_queues({"account": "123456789012", "region": "eu-west-1", "queues": {"a": {"dead_letter": "b2"}, "b2": {}}})
    place = "123456789012/eu-west-1"
    assert names(door) == [(place, "a"), (place, "b2")]
    assert json.loads(shown(door, "a", place)["RedrivePolicy"])["deadLetterTargetArn"] == "arn:aws:sqs:eu-west-1:123456789012:b2"


async def test_every_attribute_has_its_own_name_and_one_in_small_letters(door: Door) -> None:
    values: dict[str, Any] = {
        "VisibilityTimeout": 1,
        "DelaySeconds": 2,
        "MaximumMessageSize": 1024,
        "MessageRetentionPeriod": 60,
        "ReceiveMessageWaitTimeSeconds": 3,
        "KmsDataKeyReusePeriodSeconds": 61,
        "KmsMasterKeyId": "alias/mine",
        "SqsManagedSseEnabled": False,
        "FifoQueue": True,
        "ContentBasedDeduplication": True,
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
        "Policy": {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}},
        "RedrivePolicy": {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead.fifo", "maxReceiveCount": 4},
        "RedriveAllowPolicy": {"redrivePermission": "denyAll"},
    }
    assert values.keys() == set(queuefile.SETTABLE)
    small = {small: values[name] for small, name in queuefile.KEYS.items() if small not in values and small not in queuefile.SHORT}
    assert len(small) == len(values)
    await door.make_queues({"queues": {"own.fifo": values, "small.fifo": small, "dead.fifo": {}}})
    assert shown(door, "own.fifo") == shown(door, "small.fifo")
    assert {name: type(values[name])(value) for name, value in shown(door, "own.fifo").items() if isinstance(values[name], int)} | {
        "SqsManagedSseEnabled": False
    } == {name: value for name, value in values.items() if isinstance(value, int)}
    for name in ("Policy", "RedrivePolicy", "RedriveAllowPolicy"):
        assert json.loads(shown(door, "own.fifo")[name]) == values[name]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("12h", 43_200), ("0s", 0), ("7 s", 7), ("45", 45)], ids=lambda value: str(value)
)
async def test_durations_are_written_as_people_say_them(door: Door, text: str, seconds: int) -> None:
    await door.make_queues({"queues": {"q1": {"visibility_timeout": text}}})
    assert shown(door, "q1")["VisibilityTimeout"] == str(seconds)


SLIPS: list[tuple[str, str]] = [
    ("[queue.orders]", ": queue: there is no such key; at the top are account, region and tables such as [queues.orders]"),
    ("account = 12", ': account: must be twelve digits in quotes, such as "000000000000"'),
    ('region = "Mars!"', ': region: must be a region such as "us-east-1"'),
    ("queues = 5", ": queues: must be tables, such as [queues.orders]"),
    ("queues = { orders = 5 }", ": [queues.orders]: must be a table: [queues.orders]"),
    (
        '[queues."a b"]',
        ': [queues."a b"]: a name has 1 to 80 letters, digits, hyphens or underscores, and .fifo at the end of a FIFO queue\'s',
    ),
    (
        "[queues.orders]\nvisibility_timeout = 43201",
        ": [queues.orders] visibility_timeout: 43201: must be 0 to 43200 seconds, as a whole number or as 90s, 5m, 12h or 4d",
    ),
    (
        '[queues.orders]\nDelaySeconds = "1d"',
        ": [queues.orders] DelaySeconds: '1d': must be 0 to 900 seconds, as a whole number or as 90s, 5m, 12h or 4d",
    ),
    (
        "[queues.orders]\nretention = true",
        ": [queues.orders] retention: true: must be 60 to 1209600 seconds, as a whole number or as 90s, 5m, 12h or 4d",
    ),
    (
        "[queues.orders]\nmax_message_size = 1023",
        ": [queues.orders] max_message_size: 1023: must be 1024 to 1048576 bytes, as a whole number or as 256KiB",
    ),
    (
        '[queues."a.fifo"]\ndeduplication_scope = "all"',
        ": [queues.\"a.fifo\"] deduplication_scope: 'all': must be queue or messageGroup",
    ),
    (
        "[queues.orders]\ncontent_based_deduplication = true",
        ": [queues.orders] content_based_deduplication: belongs to a FIFO queue, whose name ends with .fifo",
    ),
    (
        "[queues.orders]\ndelay = 1\nDelaySeconds = 1",
        ": [queues.orders] DelaySeconds: is the same as delay, which is there too",
    ),
    ("[queues.orders]\npolicy = 5.5", ": [queues.orders] policy: 5.5: must be a table, or a text with JSON"),
    (
        "[queues.orders]\nmax_receives = 5",
        ": [queues.orders] max_receives: says after how many receives a message goes to dead_letter, which is missing",
    ),
    ("[queues.orders]\ndead_letter = 5", ": [queues.orders] dead_letter: 5: must be the name of a queue"),
    ('[queues.orders]\ndead_letter = "orders"', ": [queues.orders] dead_letter: a queue cannot be its own dead-letter queue"),
    (
        '[queues.orders]\ndead_letter = "a.fifo"',
        ": [queues.orders] dead_letter: 'a.fifo': a FIFO queue has a FIFO dead-letter queue, and a standard one a standard one",
    ),
    (
        '[queues.orders]\ndead_letter = "gone"',
        ": [queues.orders] dead_letter: 'gone': there is no such queue, neither in this file nor in the node",
    ),
    (
        '[queues.orders]\ndead_letter = "dead"\nmax_receives = 1001\n[queues.dead]',
        ": [queues.orders] max_receives: 1001: must be a whole number of 1 to 1000",
    ),
    ("[queues.orders]\ntags = { a = 5 }", ': [queues.orders] tags: must be texts by name, such as { team = "shop" }'),
    ('[queues.orders]\ntags = { "aws:x" = "y" }', ": [queues.orders] tags: The tag key aws:x uses the reserved prefix aws:."),
]


@pytest.mark.parametrize(("text", "told"), SLIPS, ids=[told[2:60] for _, told in SLIPS])
async def test_a_slip_is_told_with_file_queue_and_key_and_makes_nothing(door: Door, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "queues.toml"
    file.write_text(text)
    with pytest.raises(BadRequest) as refused:
        await door.make_queues(str(file))
    assert str(refused.value) == f"{file}{told}"
    assert names(door) == []


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("b2", "RedriveAllowPolicy", {"redrivePermission": "perhaps"}),
        ("b2", "redrive_policy", {"maxReceiveCount": 5}),
        ("b2", "RedrivePolicy", "{"),
        ("b2", "policy", {"Version": "1999-01-01"}),
    ],
)
async def test_a_document_is_checked_before_anything_is_made(door: Door, name: str, key: str, value: object) -> None:
    with pytest.raises(BadRequest, match=rf"^queues: \[queues\.{name}\] {key}: "):
        await door.make_queues({"queues": {"a1": {}, name: {key: value}}})
    assert names(door) == []


async def test_what_only_the_queue_itself_can_refuse_is_told_with_its_key(door: Door) -> None:
    with pytest.raises(BadRequest, match=r'^queues: \[queues\."a\.fifo"\] fifo_throughput_limit: '):
        await door.make_queues({"queues": {"a.fifo": {"fifo_throughput_limit": "perMessageGroupId"}}})
    with pytest.raises(BadRequest, match=r"^queues: \[queues\.a1\] dead_letter: .*RedriveAllowPolicy"):
        await door.make_queues({"queues": {"a1": {"dead_letter": "b2"}, "b2": {"redrive_allow_policy": {"redrivePermission": "denyAll"}}}})


async def test_a_key_that_there_is_not_is_told_with_those_that_there_are(door: Door) -> None:
    with pytest.raises(
        BadRequest, match=r"queues: \[queues.orders\] visibilty_timeout: there is no such key; there are .*visibility_timeout"
    ):
        await door.make_queues({"queues": {"orders": {"visibilty_timeout": 5}}})


async def test_a_file_that_is_not_there_not_toml_or_too_large_is_told(door: Door, tmp_path: Path) -> None:
    file = tmp_path / "queues.toml"
    with pytest.raises(BadRequest, match=r"queues.toml: cannot be read: No such file or directory"):
        await door.make_queues(str(file))
    file.write_bytes(b"\xff")
    with pytest.raises(BadRequest, match=r"queues.toml: is not TOML: 'utf-8'"):
        await door.make_queues(str(file))
    file.write_text("[queues")
    with pytest.raises(BadRequest, match=r"queues.toml: is not TOML: "):
        await door.make_queues(str(file))
    file.write_bytes(b"#" * (queuefile.FILE_BYTES_MAX + 1))
    with pytest.raises(BadRequest, match=r"is larger than 4194304 bytes"):
        await door.make_queues(str(file))
    with pytest.raises(BadRequest, match=r"has 10001 queues; 10000 are allowed"):
        await door.make_queues({"queues": {f"q{number}": {} for number in range(10_001)}})


async def test_beyond_sqs_the_file_may_go_beyond_too() -> None:
    async with open_node("memory:") as node:
        from dovetail.settings import Sqs

        door = node.sqs_door(Settings(sqs=Sqs(beyond="on")))
        await door.make_queues({"queues": {"slow": {"delay": "30d"}}})
        assert shown(door, "slow")["DelaySeconds"] == "2592000"


async def test_a_reset_door_has_no_queue_of_any_account(door: Door) -> None:
    await door.make_queues({"account": "111111111111", "queues": {"a": {}}})
    await door.make_queues({"queues": {"b": {}}})
    await door.reset()
    assert names(door) == []
