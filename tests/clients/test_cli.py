"""Promises to people at a shell: the AWS CLI as it is installed, with nothing but an address and made-up keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.aws import KEY, SECRET
from tests.clients.node import Node

Aws = Callable[..., Any]


DRIVER = """
import contextlib, io, json, sys
from awscli.clidriver import create_clidriver

for line in sys.stdin:
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = create_clidriver().main(json.loads(line))
        except SystemExit as ended:
            code = ended.code
    for stream in (out, err):
        stream.flush()
    print(json.dumps([code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()]), flush=True)
"""
"""The CLI's own entry point, once for every line. Starting it anew takes a second each time; the README's block does that."""


@pytest.fixture(scope="module")
def aws(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """`aws sqs …` in a home of its own; returns what it printed. `fails`: the error that it must end with."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path_factory.mktemp("home")),
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", DRIVER], env=environment, stdin=pipe, stdout=pipe, text=True) as driver:
        assert driver.stdin is not None and driver.stdout is not None
        stdin, stdout = driver.stdin, driver.stdout

        def run(*words: str, fails: str = "") -> Any:
            stdin.write(json.dumps(["--endpoint-url", node.url, "--output", "json", "sqs", *words]) + "\n")
            stdin.flush()
            code, out, err = json.loads(stdout.readline())
            if fails:
                assert code != 0 and fails in err, (out, err)
                return err
            assert code == 0, (words, err)
            return json.loads(out) if out.strip() else None

        yield run
        stdin.close()


def test_a_day_at_the_shell(aws: Aws, node: Node, name: str) -> None:
    url = aws("create-queue", "--queue-name", name, "--attributes", "VisibilityTimeout=45", "--tags", "team=blue")["QueueUrl"]
    assert url == f"{node.url}/000000000000/{name}"
    sent = aws(
        "send-message", "--queue-url", url, "--message-body", "grüezi", "--message-attributes",
        '{"city":{"DataType":"String","StringValue":"Rome"},"raw":{"DataType":"Binary","BinaryValue":"AP8Q"}}',
    )  # fmt: skip
    words = ("receive-message", "--queue-url", url, "--message-attribute-names", "All", "--message-system-attribute-names", "All")
    (got,) = aws(*words)["Messages"]
    assert (got["MessageId"], got["Body"], got["MD5OfBody"]) == (sent["MessageId"], "grüezi", sent["MD5OfMessageBody"])
    assert got["MessageAttributes"]["city"] == {"StringValue": "Rome", "DataType": "String"}
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert aws("delete-message", "--queue-url", url, "--receipt-handle", got["ReceiptHandle"]) is None
    attributes = aws("get-queue-attributes", "--queue-url", url, "--attribute-names", "All")["Attributes"]
    assert (attributes["VisibilityTimeout"], attributes["ApproximateNumberOfMessages"]) == ("45", "0")
    assert aws("send-message", "--queue-url", url, "--message-body", "to be purged")["MessageId"]
    assert aws("purge-queue", "--queue-url", url) is None
    assert aws("receive-message", "--queue-url", url) is None
    assert url in aws("list-queues", "--queue-name-prefix", name)["QueueUrls"]
    assert aws("delete-queue", "--queue-url", url) is None
    told = aws("get-queue-url", "--queue-name", name, fails="NonExistentQueue")
    assert "The specified queue does not exist." in told


def test_dead_letters_are_moved_back_from_the_shell(aws: Aws, name: str) -> None:
    dead = aws("create-queue", "--queue-name", f"{name}-dead")["QueueUrl"]
    arn = aws("get-queue-attributes", "--queue-url", dead, "--attribute-names", "QueueArn")["Attributes"]["QueueArn"]
    policy = json.dumps({"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}), "VisibilityTimeout": "0"})
    url = aws("create-queue", "--queue-name", name, "--attributes", policy)["QueueUrl"]
    batch = json.dumps([{"Id": "1", "MessageBody": "poison"}])
    assert len(aws("send-message-batch", "--queue-url", url, "--entries", batch)["Successful"]) == 1
    assert aws("receive-message", "--queue-url", url)["Messages"][0]["Body"] == "poison"
    assert aws("receive-message", "--queue-url", url) is None, "it has gone to the dead letters"
    assert aws("start-message-move-task", "--source-arn", arn)["TaskHandle"]
    assert aws("receive-message", "--queue-url", url, "--wait-time-seconds", "20")["Messages"][0]["Body"] == "poison"
    (task,) = aws("list-message-move-tasks", "--source-arn", arn)["Results"]
    assert (task["SourceArn"], task["ApproximateNumberOfMessagesMoved"]) == (arn, 1)
