"""A program of its own: a driver whose executors are on another host. Takes a queue's messages through them, and prints what came of it.

python -m tests.network.far MASTER HOST ENDPOINT FOLDER OPTIONS, which are the source's, as JSON"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pyarrow as pa

import dovetail.spark


def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the number of each message, and the network in which it was read."""
    for batch in batches:
        here = pa.array([os.readlink("/proc/self/ns/net")] * batch.num_rows)
        yield pa.RecordBatch.from_arrays([batch.column("sequence"), here], ["sequence", "network"])


def main(master: str, host: str, endpoint: str, folder: str, more: dict[str, str]) -> None:
    settings = {"spark.driver.host": host, "spark.driver.bindAddress": host, "spark.executor.memory": "512m", "spark.log.level": "OFF"}
    spark = dovetail.spark.session("far", master=master, settings=settings)
    options = {"endpoint": endpoint, "queue": "orders", "partitions": "2", "columns": "sequence", **more}
    stream = spark.readStream.format("dovetail").options(**options).load()
    rows = stream.mapInArrow(told, "sequence BIGINT, network STRING")
    found: list[tuple[int, str]] = []

    def step(batch: object, number: int) -> None:
        found.extend((row.sequence, row.network) for row in batch.collect())  # type: ignore[attr-defined]

    query = rows.writeStream.foreachBatch(step).option("checkpointLocation", folder).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()
    elsewhere = os.readlink("/proc/self/ns/net") not in {network for _, network in found}
    print(json.dumps({"sequences": sorted(number for number, _ in found), "elsewhere": elsewhere}))


if __name__ == "__main__":
    main(*sys.argv[1:5], json.loads(sys.argv[5]))  # type: ignore[misc]
