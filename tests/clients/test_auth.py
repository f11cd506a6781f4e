"""Who may call, through the real server and with unmodified boto3: signatures, keys that come and go while the node runs, and the flags
without which a node does not start."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from botocore import UNSIGNED
from botocore.exceptions import ClientError

from tests.clients.aws import client, settings
from tests.clients.conftest import Start
from tests.clients.node import Node, NotStarted
from tests.clients.querymodel import write

NOTICE_S = 60.0
SECRET = "a-secret-of-the-environment"


class Key(NamedTuple):
    account: str
    key: str
    secret: str
    token: str | None = None

    def client(self, node: Node, **more: Any) -> Any:
        return client(node, key=self.key, secret=self.secret, token=self.token, **more)


def refused(call: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(ClientError) as error:
        call()
    response = error.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def account(folder: Path, *words: str) -> dict[str, Any]:
    """`dovetail account …`, as an operator types it beside a running node."""
    command = [sys.executable, "-m", "dovetail", "account", *words, "--accounts", "accounts.json", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def made(told: dict[str, Any]) -> Key:
    return Key(told["account"], told["access_key_id"], told["secret_access_key"], told.get("session_token"))


def soon(call: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """What a call that works now is refused with, once the node has noticed."""
    give_up = time.monotonic() + NOTICE_S
    while time.monotonic() < give_up:
        try:
            return call()
        except pytest.fail.Exception:
            time.sleep(0.05)
    raise AssertionError("it still works")


@pytest.fixture
def signed(start: Start) -> Node:
    environment = {"DOVETAIL_ACCESS_KEY_ID": "AKIAFROMTHEENVIRONMENT", "DOVETAIL_SECRET_ACCESS_KEY": SECRET}
    return start("--store", "memory:", "--auth", "signed", environment=environment)


def test_a_key_of_the_environment_opens_and_nothing_else_does(signed: Node) -> None:
    right = client(signed, key="AKIAFROMTHEENVIRONMENT", secret=SECRET)
    url = right.create_queue(QueueName="kept")["QueueUrl"]
    assert url == f"{signed.url}/000000000000/kept"
    right.send_message(QueueUrl=url, MessageBody="x" * 100_000, MessageAttributes={"a": {"DataType": "String", "StringValue": "ü"}})
    assert right.receive_message(QueueUrl=url)["Messages"]
    wrong = client(signed, key="AKIAFROMTHEENVIRONMENT", secret="another-secret")
    unknown = client(signed, key="AKIANOBODY", secret=SECRET)
    unsigned = client(signed, config=settings(signature_version=UNSIGNED))
    tokened = client(signed, key="AKIAFROMTHEENVIRONMENT", secret=SECRET, token="a-token-that-nobody-gave")
    for act in ("list_queues", "receive_message", "purge_queue"):
        members = {} if act == "list_queues" else {"QueueUrl": url}
        assert refused(lambda act=act, members=members: getattr(wrong, act)(**members)) == (403, "SignatureDoesNotMatch")
        assert refused(lambda act=act, members=members: getattr(unknown, act)(**members)) == (403, "InvalidClientTokenId")
        assert refused(lambda act=act, members=members: getattr(unsigned, act)(**members)) == (403, "MissingAuthenticationToken")
        assert refused(lambda act=act, members=members: getattr(tokened, act)(**members)) == (403, "InvalidClientTokenId")
    assert SECRET not in signed.errors
    counts = right.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"])["Attributes"]
    assert counts == {"ApproximateNumberOfMessagesNotVisible": "1"}, "the purge that was refused purged nothing"


def test_a_presigned_url_opens_what_was_signed_and_no_more(signed: Node, tmp_path: Path) -> None:
    # A URL can hold a whole call only in the query protocol.
    right = client(signed, key="AKIAFROMTHEENVIRONMENT", secret=SECRET, models=write(tmp_path / "models"))
    url = right.create_queue(QueueName="kept")["QueueUrl"]
    target = right.generate_presigned_url("list_queues", Params={"QueueNamePrefix": "ke"}, ExpiresIn=60, HttpMethod="GET").removeprefix(
        signed.url
    )
    status, told = signed.page(target)
    assert status == 200 and f"<QueueUrl>{url}</QueueUrl>" in told
    last = "0" if target[-1] != "0" else "1"
    for changed in (
        target.replace("X-Amz-Expires=60", "X-Amz-Expires=600"),
        target.replace("QueueNamePrefix=ke", "QueueNamePrefix=k"),
        target.replace("Action=ListQueues", "Action=PurgeQueue"),
        target[:-1] + last,
        target + "&MaxResults=1",
    ):
        assert changed != target
        status, told = signed.page(changed)
        assert status == 403 and "<Code>SignatureDoesNotMatch</Code>" in told, (changed, told)
    status, told = signed.page(target.partition("&X-Amz")[0])
    assert status == 403 and "<Code>MissingAuthenticationToken</Code>" in told


def test_health_and_readiness_are_for_everybody_and_say_nothing(signed: Node) -> None:
    assert signed.page("/-/healthy") == (200, "ok\n")
    assert signed.page("/-/ready") == (200, "ready\n")


@pytest.mark.slow
def test_keys_come_and_go_while_the_node_runs(start: Start, tmp_path: Path) -> None:
    first = made(account(tmp_path, "create", "orders"))
    node = start("--store", "local:data", "--auth", "signed", "--accounts", "accounts.json")
    sqs = first.client(node)
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    assert url == f"{node.url}/{first.account}/orders"
    second = made(account(tmp_path, "key", "add", "orders"))
    give_up = time.monotonic() + NOTICE_S
    while True:
        try:
            second.client(node).send_message(QueueUrl=url, MessageBody="with the new key")
            break
        except ClientError:
            assert time.monotonic() < give_up, "the new key is not noticed"
            time.sleep(0.05)
    account(tmp_path, "key", "remove", first.key)
    assert soon(lambda: refused(lambda: sqs.list_queues())) == (403, "InvalidClientTokenId")
    assert second.client(node).receive_message(QueueUrl=url)["Messages"][0]["Body"] == "with the new key"
    account(tmp_path, "key", "disable", second.key)
    assert soon(lambda: refused(lambda: second.client(node).list_queues())) == (403, "InvalidClientTokenId")
    assert not any(key.secret in node.errors for key in (first, second))


@pytest.mark.parametrize("store", ["memory:", "local:data"])
def test_beyond_this_machine_a_node_wants_to_know_who_calls(start: Start, tmp_path: Path, store: str) -> None:
    with pytest.raises(NotStarted) as refusal:
        start("--store", store, "--auth", "open", address="0.0.0.0")
    assert refusal.value.code == 2 and re.match(r"dovetail: --http 0\.0\.0\.0:\d+: with --auth open", refusal.value.errors)
    assert list(tmp_path.iterdir()) == []


def test_signed_without_anybody_who_could_sign_is_refused(start: Start) -> None:
    with pytest.raises(NotStarted) as refusal:
        start("--store", "memory:", "--auth", "signed", address="0.0.0.0")
    assert refusal.value.code == 2 and "there is no account yet" in refusal.value.errors
    with pytest.raises(NotStarted) as refusal:
        start("--store", "memory:", "--auth", "signed", environment={"DOVETAIL_ACCESS_KEY_ID": "AKIAHALF"})
    assert refusal.value.code == 2 and "set together or not at all" in refusal.value.errors


def test_any_key_is_taken_where_the_operator_says_so_and_the_log_is_loud(start: Start) -> None:
    node = start("--store", "memory:", "--auth", "any", address="0.0.0.0")
    give_up = time.monotonic() + NOTICE_S
    for loud in ("EVERYBODY who reaches this address can read and delete every message", f"no TLS on 0.0.0.0:{node.port}"):
        while loud not in node.errors:
            # It is read by a thread of its own, which may be behind the line that says ready.
            assert time.monotonic() < give_up, node.errors
            time.sleep(0.05)
    assert client(node, key="whoever", secret="whatever").create_queue(QueueName="q")["QueueUrl"] == f"{node.url}/000000000000/q"
