"""From queue to queue exactly once, while a tap reads everything that went in."""

import asyncio

import dovetail


async def main() -> None:
    async with dovetail.open("memory:") as node:
        raw = await node.queue("raw")
        clean = await node.queue("clean")
        archive = await raw.tap("archive")

        await raw.send_many([b" apples ", b" pears ", b" plums "])
        while messages := await raw.receive(max=10):
            for message in messages:
                # Both happen or neither: a crash in between cannot lose or double it.
                await message.complete_and_send(clean, message.body.strip())

        print("clean:", [message.body for message in await clean.receive(max=10)])
        batch = await archive.read(max=100)
        print("archived:", [one.body for one in batch.messages])
        await archive.advance(batch.next)  # what was read is let go
        assert len(batch) == 3


asyncio.run(main())
