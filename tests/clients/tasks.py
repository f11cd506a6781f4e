"""A Celery application as people write one. The worker of test_celery.py imports it; where it finds the node stands in the environment:
SQS_URL, DONE (a folder in which each finished task leaves a file), PREDEFINED (the queue's URL, or empty)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Celery

VISIBILITY_S = 2
"""Tasks that a worker held when the node died come back after this."""


def make(url: str, predefined: str = "") -> Any:
    options: dict[str, Any] = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1, "polling_interval": 0.1}
    options["visibility_timeout"] = VISIBILITY_S
    if predefined:
        options["predefined_queues"] = {"celery": {"url": predefined}}
    app = Celery("tests.clients.tasks", broker="sqs://made-up-key:made-up-secret@" + url.partition("://")[2])
    app.conf.update(
        broker_transport_options=options,
        task_default_queue="celery",
        task_acks_late=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
    )
    return app


app = make(os.environ.get("SQS_URL", "http://127.0.0.1:9324"), os.environ.get("PREDEFINED", ""))


@app.task
def note(name: str) -> None:
    """Done twice, the file is longer by a line."""
    with (Path(os.environ["DONE"]) / name).open("a") as file:
        file.write("done\n")
