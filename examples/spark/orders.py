"""Orders through a queue into Spark, live, on this machine alone:

    pip install 'dovetail[spark]'          and [jre] where there is no Java
    python examples/spark/orders.py

A node, a producer that sends orders as JSON for some seconds, and a consumer that works them off, as in any shop. Beside them a stream that
counts orders by city, an archive in Parquet, a measure of what the consumer saw, and charts at the end. What the stream and the archive
hold is compared with what was sent.
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

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import dovetail.blocking
import dovetail.spark
from dovetail.spark.pipelines import archive, find, measure

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
trace: list[tuple[str, int, int]] = []
"""(what was done, when, with which order): what `measure` wants to know."""


def produce() -> None:
    number = 0
    with dovetail.blocking.connect(endpoint) as connection:
        orders = connection.queue("orders")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            cities = random.choices(CITIES, weights=[1, 4, 2, 3], k=100)
            numbers = range(number, number + 100)
            told = [{"city": city, "amount": random.randrange(5, 100), "number": one} for one, city in enumerate(cities, number)]
            begun = time.monotonic_ns()
            orders.send_many([json.dumps(order).encode() for order in told])
            trace.extend(("sent", begun, one) for one in numbers)
            trace.extend(("acked", time.monotonic_ns(), one) for one in numbers)
            orders.send(b"not an order")
            sent.update(cities)
            sent["not an order"] += 1
            number += 100
            time.sleep(0.05)


def consume() -> None:
    with dovetail.blocking.connect(endpoint) as connection:
        orders = connection.queue("orders")
        while messages := orders.receive(max=100, wait_s=3):
            now = time.monotonic_ns()
            for message in messages:
                if message.body.startswith(b"{"):
                    trace.append(("delivered", now, json.loads(message.body)["number"]))
            for message in messages:
                message.complete()


# %% Both taps are there before anything is sent: what has been consumed by then a tap does not have
with dovetail.blocking.connect(endpoint) as connection:
    for tap in ("counts", "archive"):
        connection.queue("orders").tap(tap)

producer, consumer = threading.Thread(target=produce), threading.Thread(target=consume)
producer.start()
consumer.start()
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

# %% The archive holds all of it, in Parquet, though the consumer has taken it long ago
archive.start(
    spark, find("archive").checked({"endpoint": endpoint, "queue": "orders", "target": str(folder / "archive")})
).awaitTermination()
archived = ds.dataset(folder / "archive", format="parquet", partitioning="hive").to_table(columns=["sequence"])["sequence"].to_pylist()
assert sorted(archived) == list(range(1, sum(sent.values()) + 1))
print(f"{len(archived):,} messages in the archive {folder / 'archive'}")

# %% What the consumer saw, measured
consumer.join()
kinds, times, numbers = zip(*trace, strict=True)
rows = {"queue": ["orders"] * len(trace), "kind": list(kinds), "time_ns": list(times), "payload": list(numbers)}
pq.write_table(pa.table(rows), folder / "trace.parquet")
(seen,) = measure.over_spark(spark, str(folder / "trace.parquet")).to_pylist()
print(f"lost {seen['loss']:.1%}, delivered twice {seen['duplication']:.1%}, out of order {seen['out_of_order']:.1%}")
first = min(times)
delays: dict[int, list[float]] = {}
placed = {one: when for kind, when, one in trace if kind == "sent"}
for kind, when, one in trace:
    if kind == "delivered":
        delays.setdefault((when - first) // 1_000_000_000, []).append((when - placed[one]) / 1e6)
most = max(map(len, delays.values()))
for second, several in sorted(delays.items()):
    bar = "█" * (50 * len(several) // most)
    print(f"second {second:>2} {bar:<50} {len(several):>6,} orders, {sorted(several)[len(several) // 2]:,.0f} ms")

spark.stop()
