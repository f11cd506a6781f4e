"""Workers that wait for work, a message that fails, and where it ends up."""

import asyncio

import dovetail


async def worker(name: str, jobs: dovetail.Queue) -> None:
    while messages := await jobs.receive(wait_s=0.5):
        for message in messages:
            if message.body == b"impossible":
                print(f"{name} cannot do it (try {message.receives})")
                await message.requeue()  # after the queue's back-off
            else:
                print(f"{name} did {message.body.decode()}")
                await message.complete()


async def main() -> None:
    async with dovetail.open("memory:") as node:
        dead = await node.queue("dead")
        jobs = await node.queue("jobs", lease_s=30, max_receives=3, dead_letter=dead, backoff_s=0.05)
        await jobs.send_many([b"sweep", b"impossible", b"dust", b"polish"])
        await asyncio.gather(*(worker(name, jobs) for name in ("ann", "bob")))
        letter = (await dead.peek())[0]
        print("dead letter:", letter.body.decode())
        assert letter.body == b"impossible"


asyncio.run(main())
