"""Orders through a queue into Spark, live, on this machine alone:

    pip install 'dovetail[spark]'          and [jre] where there is no Java
    python examples/spark/orders.py

A node, a producer that sends orders as JSON for some seconds, a stream that counts them by city and second, and a chart at the end. What
the stream has read exactly once is compared with what was sent.
"""

# %% A node of our own
import atexit
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import dovetail.blocking
import dovetail.spark

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
CITIES = ["Bergen", "Kyoto", "Lima", "Porto"]

folder = Path(tempfile.mkdtemp(prefix="dovetail-example-"))
node = subprocess.Popen(
    [
        sys.executable,
        "-m",
        "dovetail",
        "serve",
        "--store",
        f"local:{folder / 'data'}",
        "--http",
        "off",
        "--native",
        "127.0.0.1:0",
        "--auth",
        "any",
    ],
    stdout=subprocess.PIPE,
    text=True,
)
atexit.register(node.terminate)
endpoint = node.stdout.readline().split("native=")[1].strip()

# %% A session, and a stream over a tap: bodies become columns, and what is no order is kept aside
spark = dovetail.spark.session("orders")
options = {
    "endpoint": endpoint,
    "queue": "orders",
    "tap": "counts",
    "bodyFormat": "json",
    "bodySchema": "city STRING, amount DOUBLE",
}

sent: Counter[str] = Counter()


def produce() -> None:
    with dovetail.blocking.connect(endpoint) as connection:
        orders = connection.queue("orders")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            cities = random.choices(CITIES, weights=[1, 4, 2, 3], k=100)
            orders.send_many([json.dumps({"city": city, "amount": random.randrange(5, 100)}).encode() for city in cities])
            orders.send(b"not an order")
            sent.update(cities)
            sent["not an order"] += 1
            time.sleep(0.05)


with dovetail.blocking.connect(endpoint) as connection:
    connection.queue("orders")  # The stream finds it there.

producer = threading.Thread(target=produce)
producer.start()
dovetail.spark.follow(spark, **options)
stream = spark.readStream.format("dovetail").options(**options).load()

# %% Each batch is added up under its number, so that one that is run again changes nothing
totals: dict[int, Counter[str]] = {}


def count(rows, batch):
    counted = rows.selectExpr("coalesce(body.city, 'not an order') AS city").groupBy("city").count().collect()
    totals[batch] = Counter({row.city: row["count"] for row in counted})
    print(f"batch {batch}: {sum(totals[batch].values()):,} messages", flush=True)


query = stream.writeStream.foreachBatch(count).option("checkpointLocation", str(folder / "checkpoint")).start()
producer.join()

# %% Everything that was sent is read, once
while sum(sum(batch.values()) for batch in list(totals.values())) < sum(sent.values()) and query.isActive:
    time.sleep(0.2)
query.stop()
read = sum(totals.values(), Counter())
for city, number in read.most_common():
    print(f"{city:>14} {'█' * (50 * number // max(read.values()))} {number:,}")
assert read == sent, f"{read} were read and {sent} sent"
print(f"{sum(read.values()):,} messages, none lost and none twice")

spark.stop()
