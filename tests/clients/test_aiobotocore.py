"""Promises to people who use aiobotocore: many long polls in one process, each woken by what was sent to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from tests.clients.aws import KEY, SECRET
from tests.clients.node import Node

POLLS = 40


def connect(node: Node) -> Any:
    return get_session().create_client(
        "sqs",
        endpoint_url=node.url,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=AioConfig(max_pool_connections=POLLS + 10, retries={"total_max_attempts": 1}, read_timeout=60),
    )


async def test_many_long_polls_wait_together_and_each_message_wakes_one(node: Node, name: str) -> None:
    async with connect(node) as sqs:
        url = (await sqs.create_queue(QueueName=name))["QueueUrl"]

        async def poll() -> list[str]:
            got = await sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
            return [one["Body"] for one in got.get("Messages", [])]

        polls = [asyncio.create_task(poll()) for _ in range(POLLS)]
        # Some sends meet waiting polls and some come before them; both must wake.
        await asyncio.gather(*(sqs.send_message(QueueUrl=url, MessageBody=str(number)) for number in range(POLLS)))
        assert Counter(body for bodies in await asyncio.gather(*polls) for body in bodies) == Counter(map(str, range(POLLS)))
        assert "Messages" not in await sqs.receive_message(QueueUrl=url)


async def test_a_poll_that_is_given_up_takes_no_message_along(node: Node, name: str) -> None:
    async with connect(node) as sqs:
        url = (await sqs.create_queue(QueueName=name))["QueueUrl"]
        polls = [asyncio.create_task(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)) for _ in range(10)]
        await asyncio.sleep(0.2)
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        await sqs.send_message(QueueUrl=url, MessageBody="for whoever is still there")
        got = await sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
        assert [one["Body"] for one in got["Messages"]] == ["for whoever is still there"]


async def test_producers_and_consumers_side_by_side_lose_and_double_nothing(node: Node, name: str) -> None:
    async with connect(node) as sqs:
        url = (await sqs.create_queue(QueueName=name))["QueueUrl"]
        seen: Counter[str] = Counter()

        async def produce(first: int) -> None:
            entries = [{"Id": str(number), "MessageBody": str(first + number)} for number in range(10)]
            assert len((await sqs.send_message_batch(QueueUrl=url, Entries=entries))["Successful"]) == 10

        async def consume() -> None:
            while seen.total() < 200:
                got = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
                messages = got.get("Messages", [])
                seen.update(one["Body"] for one in messages)
                if messages:
                    entries = [{"Id": str(number), "ReceiptHandle": one["ReceiptHandle"]} for number, one in enumerate(messages)]
                    assert len((await sqs.delete_message_batch(QueueUrl=url, Entries=entries))["Successful"]) == len(entries)

        await asyncio.gather(*(produce(10 * number) for number in range(20)), *(consume() for _ in range(8)))
        assert seen == Counter(map(str, range(200)))
