"""A node in another process: many tasks on one connection, workers that are given messages as they come, what fails and comes back.

`python client.py dovetail://127.0.0.1:9325` uses a node that runs (`dovetail serve`); without an address one is started in memory.
"""

import asyncio
import subprocess
import sys

import dovetail


async def main(url):
    # With dovetail.open("local:./data") in place of this line the node would be in this process, and nothing else would change.
    async with dovetail.connect(url) as node:
        jobs = await node.queue("jobs", lease_s=30)

        # A thousand tasks send one message each: they ride one frame, and each has its own answer.
        sent = await asyncio.gather(*(jobs.send(b"job %d" % number) for number in range(1000)))
        print("sent", len(sent), "reached", sent[0].durability)

        # At most fifty are here and not done. A handler that raises gives its message back; leases are prolonged while it works.
        done = 0
        failed = set()
        async for message in jobs.consume(credit=50):
            try:
                async with message:
                    if message.body == b"job 7" and message.receives == 1:
                        raise ValueError("not today")
                    done += 1
            except ValueError as error:
                failed.add((message.body, str(error)))
            if done == 1000:
                break
        print("done", done, "after a second try of", failed)

        # Where there are many, take them as they come: nothing is made for a message that nobody looks at.
        await jobs.send_many([b"x" * 100] * 5000)
        done = 0
        async for batch in jobs.consume(credit=2000).batches():
            done += sum(await batch.complete())
            if done == 5000:
                break
        print("done in batches", done)
        await node.drop("jobs")


def started():
    """`dovetail serve`, and the address in its ready line."""
    command = [sys.executable, "-m", "dovetail", "serve", "--store", "memory:", "--http", "off", "--native", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().split("native=")[1].strip()


if __name__ == "__main__":
    process, url = (None, sys.argv[1]) if sys.argv[1:] else started()
    try:
        asyncio.run(main(url))
    finally:
        if process is not None:
            process.terminate()
            process.wait()
