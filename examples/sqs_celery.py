"""Celery on `sqs://`: tasks wait in a queue that keeps what it has taken, and a worker of its own finishes them.

Needs celery[sqs]. With a node that runs (`dovetail serve`) it is two commands, in this folder:

    celery -A sqs_celery worker
    python -c "import sqs_celery; sqs_celery.pack.delay('two dozen eggs')"

Run as it is (`python sqs_celery.py`) it starts a node in memory and a worker, sends three tasks and waits until they are done.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from celery import Celery

ADDRESS = os.environ.get("SQS_ADDRESS", "127.0.0.1:9324")

# Any key will do on this machine; `is_secure` is for a node with --tls-cert.
app = Celery("sqs_celery", broker=f"sqs://any:any@{ADDRESS}")
app.conf.broker_transport_options = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 2, "polling_interval": 0.1}
# A task is deleted when it is done and not when it is begun: one whose worker dies comes again.
app.conf.task_acks_late = True


@app.task
def pack(order):
    if folder := os.environ.get("PACKED"):
        (Path(folder) / order).touch()
    return f"packed {order}"


def main():
    import dovetail

    orders = ["eggs", "milk", "bread"]
    with dovetail.testing.serve() as server, tempfile.TemporaryDirectory() as packed:
        address = server.url.partition("://")[2]
        environment = {**os.environ, "SQS_ADDRESS": address, "PACKED": packed}
        command = [sys.executable, "-m", "celery", "-A", "sqs_celery", "worker", "--pool", "solo", "--loglevel", "error"]
        # Its banner is for people: it goes to stderr, with everything else that the worker says.
        worker = subprocess.Popen(command, env=environment, cwd=Path(__file__).parent, stdout=sys.stderr)
        try:
            app.conf.broker_url = f"sqs://any:any@{address}"
            for order in orders:
                pack.delay(order)
            while worker.poll() is None and sorted(os.listdir(packed)) != sorted(orders):
                time.sleep(0.1)
            print("packed", sorted(os.listdir(packed)))
        finally:
            worker.terminate()
            worker.wait()


if __name__ == "__main__":
    main()
