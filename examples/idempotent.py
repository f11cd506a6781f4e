"""Work that must not be done twice: what was finished under a key is not begun again, whoever sends it twice."""

import asyncio

import dovetail
from dovetail import process_once


async def main():
    async with dovetail.open("memory:") as node:  # or dovetail.connect("dovetail://127.0.0.1:9325")
        orders = await node.queue("orders")
        invoices = await node.queue("invoices", deduplication_s=3600)

        # The shop was not sure that its first try arrived.
        await orders.send_many([b"4711", b"4711", b"4712"])

        for message in await orders.receive(max=10):
            order = message.body.decode()
            async with process_once(message, key=order) as once:
                if once.first:
                    # Stored in the step that completes the message: both happen or neither.
                    once.send(invoices, f"invoice for {order}".encode())
                else:
                    print(order, "was done before")

        made = [invoice.body.decode() for invoice in await invoices.receive(max=10)]
        print(made)
        assert made == ["invoice for 4711", "invoice for 4712"]
        assert (await orders.counts()).leased == 0


asyncio.run(main())
