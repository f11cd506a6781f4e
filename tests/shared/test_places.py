"""The URL of a shared store, taken apart; which word an answer may name."""

from __future__ import annotations

import pytest

from dovetail.errors import BadRequest
from dovetail.logs.kafka.engine import Kafka
from dovetail.logs.nats.engine import JetStream
from dovetail.logs.shared.place import Place, place_of


def test_a_url_is_taken_apart() -> None:
    assert place_of("nats://a:1,b/shop?replicas=3&synced=yes", 4222) == Place("nats", ("a:1", "b:4222"), "", "shop", 3, True)
    assert place_of("nats://me:secret@a:1,b:2", 4222) == Place("nats", ("a:1", "b:2"), "me:secret", "dovetail", 0, False)
    assert place_of("nats://a/shop?logs=3").logs == 3 and place_of("nats://a/shop").logs == 0
    assert place_of("kafka://[::1]/x", 9092).hosts == ("[::1]:9092",)


def test_a_password_is_never_shown() -> None:
    assert place_of("nats://me:secret@a:1,b:2/shop", 4222).shown == "nats://a:1,b:2/shop" == JetStream("nats://me:secret@a:1,b:2/shop").name


@pytest.mark.parametrize("engine", [JetStream, Kafka])
@pytest.mark.parametrize("rest", ["", "/x", "a b/x", "a/x.y", "a/x/y", "a?replicas=2", "a?synced=1", "a?ssl=1", "a?logs=0", "a?logs=x"])
def test_what_is_no_url_of_ours_is_refused(engine: type[JetStream | Kafka], rest: str) -> None:
    with pytest.raises(BadRequest):
        engine(f"{'nats' if engine is JetStream else 'kafka'}://{rest}")


@pytest.mark.parametrize(
    ("asked", "copies", "word"),
    [("", 1, "memory"), ("", 3, "memory×3"), ("", 5, "memory×3"), ("?synced=yes", 1, "disk"), ("?synced=yes", 3, "disk×3")],
)
def test_an_answer_names_memory_unless_the_operator_has_declared_more(asked: str, copies: int, word: str) -> None:
    assert place_of(f"kafka://a{asked}", 9092).durability(copies) == word


@pytest.mark.parametrize(
    ("url", "servers", "copies"),
    [("nats://a", 1, 1), ("nats://a", 3, 3), ("nats://a,b,c", 1, 3), ("nats://a?replicas=3", 1, 3), ("nats://a,b,c?replicas=1", 3, 1)],
)
def test_a_log_has_three_copies_where_there_are_servers_for_them(url: str, servers: int, copies: int) -> None:
    assert place_of(url, 4222).copies(servers) == copies
