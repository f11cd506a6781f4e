"""Messages for later: delayed, called forward, cancelled."""

import asyncio
import time

import dovetail


async def main() -> None:
    async with dovetail.open("memory:") as node:
        reminders = await node.queue("reminders")
        started = time.monotonic()
        await reminders.send(b"tea is ready", delay_s=0.2)
        birthday = await reminders.send(b"happy birthday", delay_s=300 * 86_400)
        wrong = await reminders.send(b"wrong number", delay_s=60)

        print("cancelled:", await reminders.cancel(wrong.id))
        print("called forward:", await reminders.reschedule(birthday.id, 0))
        for _ in range(2):
            for message in await reminders.receive(wait_s=5):
                print(f"after {time.monotonic() - started:.1f} s: {message.body.decode()}")
                await message.complete()
        assert (await reminders.counts()).delayed == 0


asyncio.run(main())
