"""Messages into a topic of Kafka by the leanest client that Python has: librdkafka, in batches, acknowledged by all brokers in step.

That everything is there is asked of the brokers at the end; a callback for each message would cost more than the message."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .httpload import LoadFailed

BATCH = 10_000
WAITING_MAX = 500_000
ANSWER_S = 120.0
"""A broker that has just started, on a machine that is busy, takes its time."""


def servers_of(url: str) -> str:
    """What Kafka's clients want of `kafka://127.0.0.1:9092,…`."""
    return url.partition("://")[2]


def make_topic(servers: str, topic: str, partitions: int = 1, **settings: Any) -> None:
    """With as many copies as the brokers make by themselves, kept for ever."""
    # With the client that was asked the answer would go, so it has a name.
    client = AdminClient({"bootstrap.servers": servers})
    made = client.create_topics(
        [NewTopic(topic, partitions, config={"retention.ms": "-1", **{name: str(value) for name, value in settings.items()}})],
        request_timeout=ANSWER_S,
    )
    made[topic].result(ANSWER_S)


def stored(servers: str, topic: str, partitions: int) -> int:
    """How many messages the topic has."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    try:
        reaches = [consumer.get_watermark_offsets(TopicPartition(topic, one), ANSWER_S) for one in range(partitions)]
    finally:
        consumer.close()
    return sum(end - start for start, end in reaches)


def fill(servers: str, topic: str, messages: int, partitions: int, message_bytes: int = 100) -> dict[str, float]:
    """In a child: a new topic with so many messages, the same number in each partition."""
    make_topic(servers, topic, partitions)
    settings = {
        "bootstrap.servers": servers,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 20,
        "batch.num.messages": BATCH,
        "queue.buffering.max.messages": 2 * WAITING_MAX,
        "message.timeout.ms": int(1000 * ANSWER_S),
        # What it has to say about brokers that are still starting is no failure of ours: the count at the end is.
        "log_level": 0,
    }
    producer = Producer(settings)
    body = b"x" * message_bytes
    begun = time.perf_counter()
    left = [messages * (one + 1) // partitions - messages * one // partitions for one in range(partitions)]
    while any(left):
        for partition in range(partitions):
            count = min(BATCH, left[partition])
            left[partition] -= count
            while len(producer) > WAITING_MAX:
                producer.poll(0.01)
            if count and producer.produce_batch(topic, [{"value": body} for _ in range(count)], partition) != count:
                raise LoadFailed("the producer took fewer messages than it was given")
    if producer.flush(ANSWER_S):
        raise LoadFailed(f"Kafka did not take {len(producer):,} of {messages:,} messages in {ANSWER_S:g} s")
    seconds = time.perf_counter() - begun
    there = stored(servers, topic, partitions)
    if there != messages:
        raise LoadFailed(f"Kafka has {there:,} of {messages:,} messages")
    return {"messages": messages, "seconds": seconds, "per_s": messages / seconds}
