"""Tests against a real queue: no container, nothing patched, and time passes when the test says so. Run it with pytest, or as it is.

Needs boto3 and pytest. The import of the fixtures is for a project in which they are not registered as a plugin.
"""

import sys

import boto3
import pytest

from dovetail.testing_pytest import dovetail_server, dovetail_session  # noqa: F401


@pytest.fixture(scope="session")
def dovetail_options():
    """The queues that every test begins with; a path to a queues.toml would do as well."""
    return {"queues": {"orders": {"visibility_timeout": "1m", "dead_letter": "orders-dead", "max_receives": 2}, "orders-dead": {}}}


@pytest.fixture
def sqs(dovetail_server, monkeypatch):  # noqa: F811
    """The code under test makes its own client. It finds the server by the names that every AWS SDK reads."""
    for name, value in dovetail_server.environment.items():
        monkeypatch.setenv(name, value)
    return boto3.client("sqs")


def bodies(answer):
    return [message["Body"] for message in answer.get("Messages", [])]


def test_an_order_that_nobody_finishes_becomes_a_dead_letter(sqs, dovetail_server):  # noqa: F811
    sqs.send_message(QueueUrl="orders", MessageBody="two dozen eggs")
    for _ in range(2):
        assert bodies(sqs.receive_message(QueueUrl="orders")) == ["two dozen eggs"]
        dovetail_server.advance(60)  # whoever had it did nothing for a minute
    assert bodies(sqs.receive_message(QueueUrl="orders")) == []
    assert bodies(sqs.receive_message(QueueUrl="orders-dead")) == ["two dozen eggs"]


def test_a_reminder_comes_a_quarter_of_an_hour_later(sqs, dovetail_server):  # noqa: F811
    sqs.send_message(QueueUrl="orders", MessageBody="tea", DelaySeconds=900)
    dovetail_server.advance(899)
    assert bodies(sqs.receive_message(QueueUrl="orders")) == []
    dovetail_server.advance(1)
    assert bodies(sqs.receive_message(QueueUrl="orders")) == ["tea"]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
