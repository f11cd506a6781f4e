"""Thousands of devices that report on their own clocks, and what becomes of it, on this machine alone:

    pip install 'dovetail[spark]'                       and [jre] where there is no Java
    python examples/spark/devices.py                    1,000 devices for 20 seconds
    python examples/spark/devices.py 10000 60           more of them, longer
    python examples/spark/devices.py 10000 600 dovetail://127.0.0.1:9325      only the load, for a node of yours

Each device sends what it measures once every two seconds, as JSON. Some readings are late, one clock runs a year ahead, one device sends
nonsense, and a few fall silent in the middle. The pipeline `devices` makes windows of it; a chart at the end, and a sum that must come out:
every message is in a window or set apart.
"""

# %% The load
import atexit
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq

import dovetail.blocking
import dovetail.spark
from dovetail.spark.pipelines import devices, find

DEVICES = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
SECONDS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
PERIOD_S = 2.0
TURNS = 20
"""In each of so many parts of a period as many devices speak."""
MAD, BROKEN = 1, 2


def speaks(device: int, now: float, end: float) -> bool:
    """Five in a thousand fall silent half-way."""
    return device % 200 or now < end - SECONDS / 2


def reading(device: int, now: float) -> bytes:
    if device == BROKEN:
        return b"zzz"
    at = now + 365 * 86_400 if device == MAD else now - random.choice([0.0] * 97 + [0.5, 2.0, 8.0])
    heat = 20 + 5 * (device % 7) / 7 + random.gauss(0, 0.3)
    return json.dumps({"device": f"meter-{device:05d}", "at": at, "heat": heat}).encode()


def play(endpoint: str) -> int:
    """Returns how many messages were sent."""
    sent, turn, begun = 0, 0, time.time()
    end = begun + SECONDS
    with dovetail.blocking.connect(endpoint) as connection:
        meters = connection.queue("meters")
        while (now := time.time()) < end:
            told = [reading(device, now) for device in range(turn % TURNS, DEVICES, TURNS) if speaks(device, now, end)]
            for first in range(0, len(told), 500):
                meters.send_many(told[first : first + 500])
            sent += len(told)
            turn += 1
            time.sleep(max(0.0, begun + turn * PERIOD_S / TURNS - time.time()))
    return sent


if len(sys.argv) > 3:
    print(f"{play(sys.argv[3]):,} messages were sent")
    sys.exit()

# %% A node of our own
folder = Path(tempfile.mkdtemp(prefix="dovetail-devices-"))
store = ["--store", f"local:{folder / 'data'}", "--http", "off", "--native", "127.0.0.1:0", "--auth", "any"]
node = subprocess.Popen([sys.executable, "-m", "dovetail", "serve", *store], stdout=subprocess.PIPE, text=True)
atexit.register(node.terminate)
endpoint = node.stdout.readline().split("native=")[1].strip()
with dovetail.blocking.connect(endpoint) as connection:
    connection.queue("meters")  # The pipeline finds it there.

# %% The pipeline: the same as `dovetail pipeline run devices --queue meters …`
settings = find("devices").checked(
    {
        "endpoint": endpoint,
        "queue": "meters",
        "target": str(folder / "meters"),
        "every": "2s",
        "device": "body.device",
        "at": "body.at",
        "clock": "s",
        "values": "body.heat",
        "window": "5s",
        "late": "3s",
        "period": str(PERIOD_S),
    }
)
spark = dovetail.spark.session("devices")
step = devices.step_of(settings, print)
query = devices.start(spark, settings, step)

sent: list[int] = []
load = threading.Thread(target=lambda: sent.append(play(endpoint)))
load.start()
while load.is_alive():
    load.join(2)
    if step.told():
        print(step.told(), flush=True)


# %% Until each message is in a window, closed or open, or set apart
def rows_of(table: str) -> list[dict]:
    return [row for file in folder.glob(f"meters/{table}/queue=*/hour=*/*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]


while query.isActive:
    windows, apart, left = rows_of("windows"), rows_of("apart"), step.open_readings()
    counted = sum(row["readings"] for row in windows)
    if counted + left + len(apart) == sent[0]:
        break
    time.sleep(1)
query.stop()

# %% What came of it
silent = json.loads((folder / "meters" / "silent.json").read_text())
by_window: dict[str, list[float]] = {}
for row in windows:
    by_window.setdefault(f"{row['window']:%H:%M:%S}", []).append(row["mean"])
for when, means in sorted(by_window.items()):
    print(f"{when}  {'█' * (50 * len(means) // DEVICES)} {len(means):,} devices, {sum(means) / len(means):.1f} °C")
why = {reason: sum(row["why"] == reason for row in apart) for reason in ("late", "ahead", "unreadable")}
print(f"set apart: {why}; silent now: {len(silent['silent']):,} of {silent['devices']:,} devices")

assert counted + left + len(apart) == sent[0], f"{counted} in windows, {left} in open ones, {len(apart)} apart, and {sent[0]} sent"
print(f"{sent[0]:,} messages: {counted:,} in closed windows, {left:,} in open ones, {len(apart):,} apart, none dropped")

spark.stop()
