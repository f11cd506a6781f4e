"""Send, receive, complete. Run it twice: what was not completed is still there."""

import dovetail

with dovetail.blocking.open("local:./data/examples") as node:
    orders = node.queue("orders")
    sent = orders.send(b"two dozen eggs", attributes={"shop": "north"})
    print("stored", sent.id, "on", sent.durability)
    for message in orders.receive(max=10, wait_s=1):
        print(message.body.decode(), "from the", message.attributes["shop"].value.decode())
        message.complete()
