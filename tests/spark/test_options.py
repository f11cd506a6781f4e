"""What options may say: whatever is wrong is refused before anything is asked of a node, in words that name it. No node, no JVM."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dovetail.errors import BadRequest
from dovetail.spark.options import matches, options_of
from dovetail.spark.sinkoptions import sink_options_of
from dovetail.spark.stream import StreamReader

READ = {"queue": "orders, bills-*", "tap": "t"}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"maxRowPerTrigger": "5"}, "there is no option 'maxrowpertrigger'; there are endpoint, queue, table"),
        ({"queue": " , "}, "option queue: the name of a queue, several with commas between them, or a pattern"),
        ({"endpoint": "http://127.0.0.1:9324"}, "begins with dovetail://"),
        ({"startingOffsets": "yesterday"}, "earliest, latest, a time like 2026-05-01T12:00:00Z, or sequences like"),
        ({"startingOffsets": '{"orders": -1}'}, "sequences like"),
        ({"startingOffsets": '{"orders": 1.5}'}, "sequences like"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, "sequences like"),
        ({"startingOffsets": '{"orders'}, "sequences like"),
        ({"startingOffsets": '{"order": 5}'}, r"'order' is none of the queues that are read \(orders, bills-\*\)"),
        ({"endingOffsets": '{"bills": 5}'}, "option endingOffsets: 'bills' is none of the queues"),
        ({"maxRowsPerTrigger": "1e6"}, "a whole number above 0, not '1e6'"),
        ({"maxBytesPerTrigger": "0"}, "a whole number above 0, not '0'"),
        ({"maxTriggerDelay": "soon"}, "a time like 30s"),
        ({"failOnDataLoss": "no"}, "true or false, not 'no'"),
        ({"columns": "sequence,state"}, "there is no column 'state'; there are queue, sequence"),
        ({"bodyFormat": "xml"}, "json, avro, protobuf, not 'xml'"),
        ({"table": "queues"}, "messages or facts, not 'queues'"),
        ({"table": "facts"}, "option queue: not with table=facts"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(said: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        options_of({**READ, **said}, {})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"tap": "t"}, "no option 'tap' of a write"),
        ({"queue": "a,b"}, "one name, not 'a,b'; for several give the rows a column queue"),
        ({"create": "yes"}, "true or false"),
        ({"owner": "me"}, "both or neither"),
        ({"owner": "me", "batch": "-1"}, "a whole number from 0 on"),
    ],
)
def test_an_option_of_a_write_that_cannot_be_is_refused_by_name(said: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        sink_options_of({"queue": "orders", **said}, {})


def test_a_stream_that_is_told_to_end_is_refused_and_not_read_for_ever() -> None:
    with pytest.raises(BadRequest, match=r"endingOffsets: not of a stream.*trigger\(availableNow=True\)"):
        StreamReader(options_of({**READ, "endingOffsets": "2026-05-01"}, {}), pa.schema([]))


def test_where_to_start_may_name_queues_that_a_pattern_finds() -> None:
    assert options_of({**READ, "startingOffsets": '{"orders": 5, "bills-7": 0}'}, {}).starting == {"orders": 5, "bills-7": 0}
    assert options_of({"table": "facts", "tap": "t", "startingOffsets": '{"facts": 1000}'}, {}).starting == {"facts": 1000}


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("orders-*", "orders-eu", True),
        ("orders-*", "orders", False),
        ("*-eu", "orders-eu", True),
        ("o*s-*u", "orders-eu", True),
        ("a.*", "ab", False),
        ("[ab]*", "a", False),
        ("[ab]*", "[ab]c", True),
        ("a?*", "abc", False),
    ],
)
def test_a_star_stands_for_anything_and_nothing_else_does(pattern: str, name: str, found: bool) -> None:
    assert matches(pattern, name) is found
