"""A program of its own: a stream on `local-cluster[2,1,1024]`, one of whose executors is killed with kill −9. Prints what came of it.

python -m tests.spark.cluster ENDPOINT FOLDER OPTIONS, which are the source's, as JSON"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyspark

import dovetail.spark


def kill_an_executor(application: str) -> int:
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        # Its command line names the application: those of other sessions on this machine are left alone.
        if "CoarseGrainedExecutorBackend" in line and application in line:
            os.kill(int(line.split()[0]), signal.SIGKILL)
            return 1
    return 0


def main(endpoint: str, folder: Path, more: dict[str, str]) -> None:
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.log.level": "OFF"}
    spark = dovetail.spark.session("cluster", master="local-cluster[2,1,1024]", settings=settings)
    options = {"endpoint": endpoint, "queue": "orders", "maxRowsPerTrigger": "20000", "partitions": "4", **more}
    dovetail.spark.follow(spark, **options)
    stream = spark.readStream.format("dovetail").options(**options).load()
    writer = (
        stream.writeStream.format("parquet").option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start()
    killed = []

    def kill() -> None:
        while query.isActive and len(query.recentProgress) < 2:
            time.sleep(0.05)
        killed.append(kill_an_executor(spark.sparkContext.applicationId))

    killer = threading.Thread(target=kill)
    killer.start()
    query.awaitTermination()
    killer.join()
    rows, sequences = spark.read.parquet(str(folder / "out")).selectExpr("count(*)", "count(distinct sequence)").first()
    spark.stop()
    print(json.dumps({"killed": sum(killed), "rows": rows, "sequences": sequences}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
