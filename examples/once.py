"""A retry is not stored twice: by a text that names the message, or by a producer's numbers."""

import asyncio

import dovetail


async def main() -> None:
    async with dovetail.open("memory:") as node:
        payments = await node.queue("payments", deduplication_s=300)
        first = await payments.send(b"pay 5", deduplication="invoice 17")
        again = await payments.send(b"pay 5", deduplication="invoice 17")
        print("the same message:", first.id == again.id, "and a repeat:", again.repeat)

        producer = await node.producer("billing")
        sent = await producer.send(payments, b"pay 7")
        lost_answer = producer.last  # suppose that the answer never came …
        repeated = await producer.send(payments, b"pay 7", number=lost_answer)
        print("stored once:", repeated.repeat, repeated.sequence == sent.sequence)
        assert (await payments.counts()).visible == 2


asyncio.run(main())
