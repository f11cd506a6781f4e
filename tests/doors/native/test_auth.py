"""Who may call, and what they may do: keys are proved without a secret on the wire, and queues are their owner's."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.doors.native.bounds import Bounds
from dovetail.doors.sqs import queueattributes
from dovetail.service.accounts import Accounts, Key
from dovetail.settings import QuotaDefaults, Settings
from tests.doors.native.house import Inside, Process, Watchful
from tests.doors.native.stranger import Refused, Stranger, items, record, text


class Signed:
    """A node with accounts, and two of them."""

    def __init__(self, folder: Path, *, still: bool = False, **settings: Any) -> None:
        self.accounts = Accounts.load(str(folder / "accounts.json"))
        self.shop = self.accounts.create("shop").id
        self.other = self.accounts.create("other").id
        self.key = self.accounts.add_key(self.shop, 0)
        self.other_key = self.accounts.add_key(self.other, 0)
        made = Settings(auth="signed", **settings)
        self.inside = Inside(accounts=self.accounts, settings=made, bounds=Watchful(), still=still)

    def stranger(self, key: Key | None = None, token: str = "") -> Stranger:
        key = key or self.key
        return self.inside.stranger(key=key.access_key_id, secret=key.secret, token=token)

    def configure(self, queue: int, policy: dict[str, Any]) -> None:
        lane = self.inside.node.store.lane(queue)
        assert lane is not None
        made = queueattributes.applied(lane.attributes, {"Policy": json.dumps(policy)}, None)
        self.inside.do(self.inside.node.store.configure(queue, made))


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[Signed]:
    made = Signed(tmp_path)
    yield made
    made.inside.close()


def refused(code: str, act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code == code, caught.value
    return caught.value


def test_a_key_that_is_proved_is_welcome_and_the_node_proves_itself(signed: Signed) -> None:
    stranger = signed.stranger()  # It checks the node's own proof.
    assert stranger.auth == 1
    assert (stranger.welcome.account, stranger.welcome.namespace) == (signed.shop, f"{signed.shop}/us-east-1")


def test_a_wrong_secret_an_unknown_key_and_none_get_the_same_answer(signed: Signed) -> None:
    told = {
        refused("ACCESS_DENIED", lambda key=key, secret=secret: signed.inside.stranger(key=key, secret=secret)).text
        for key, secret in [
            (signed.key.access_key_id, "wrong-secret"),
            (signed.key.access_key_id, signed.other_key.secret),
            ("AKIAUNKNOWN", signed.key.secret),
            ("AKIAUNKNOWN", ""),
            ("", ""),
            ("\x00ö", "x"),
        ]
    }
    assert len(told) == 1


def test_a_proof_is_good_for_one_connection_only(signed: Signed) -> None:
    first = signed.stranger()
    with socket.create_connection(("127.0.0.1", signed.inside.port), 60) as raw:
        raw.sendall(struct.pack("<8sHHI", b"DOVETAIL", 1, 1, 0))
        # What an eavesdropper has: the nonce and the proof of a connection that was let in.
        import hashlib
        import hmac

        key, secret = signed.key.access_key_id, signed.key.secret
        said = b"dovetail-native-1" + first.node_nonce + first.nonce + key.encode()
        payload = first.nonce + hmac.new(secret.encode(), said, hashlib.sha256).digest() + key.encode()
        raw.sendall(struct.pack("<IBBHQ", len(payload), 1, 0, 0, 1) + payload)
        data = b""
        while piece := raw.recv(4096):
            data += piece
    assert Stranger.error(data[56 + 16 :]).code == "ACCESS_DENIED"


def test_a_temporary_key_needs_its_token_and_ends(signed: Signed) -> None:
    now_s = signed.inside.clock.wall_ms() // 1000
    key = signed.accounts.add_key(signed.shop, now_s, 3600)
    assert key.session_token is not None
    refused("ACCESS_DENIED", lambda: signed.stranger(key))
    stranger = signed.stranger(key, key.session_token)
    stranger.ask("PING")
    signed.inside.advance(3601)
    assert stranger.error(stranger.take().payload).code == "ACCESS_DENIED" and stranger.closed()
    refused("ACCESS_DENIED", lambda: signed.stranger(key, key.session_token or ""))


def test_a_key_that_is_removed_or_disabled_ends_its_connections(signed: Signed) -> None:
    for act in (
        lambda key: signed.accounts.set_enabled(key.access_key_id, False),
        lambda key: signed.accounts.remove_key(key.access_key_id),
    ):
        key = signed.accounts.add_key(signed.shop, 0)
        stranger, bystander = signed.stranger(key), signed.stranger()
        stranger.ask("PING")
        act(key)
        assert stranger.error(stranger.take().payload).code == "ACCESS_DENIED" and stranger.closed()
        bystander.ask("PING")


def test_an_account_sees_its_own_queues_only(signed: Signed) -> None:
    mine, theirs = signed.stranger(), signed.stranger(signed.other_key)
    queue, other = mine.declare("orders"), theirs.declare("orders")
    assert queue != other
    space = f"{signed.shop}/us-east-1"
    assert mine.open("orders", space) == queue == mine.open("orders")
    refused("ACCESS_DENIED", lambda: theirs.open("orders", space))
    refused("ACCESS_DENIED", lambda: theirs.open("nothing", space))
    refused("ACCESS_DENIED", lambda: theirs.declare("mine", space))
    refused("ACCESS_DENIED", lambda: theirs.declare("mine", "default"))
    # An account whose number begins alike is another account.
    refused("ACCESS_DENIED", lambda: theirs.declare("mine", signed.other + "0/us-east-1"))
    refused("ACCESS_DENIED", lambda: theirs.ask("LIST", struct.pack("<II", 9, 0) + text(space) + text("") + text("")))
    refused("NO_SUCH_QUEUE", lambda: theirs.ask("NAME", struct.pack("<Q", queue)))
    refused("NOT_OPENED", lambda: theirs.push(record([queue], [b"x"])))
    refused("NOT_OPENED", lambda: theirs.declare("dead", receives_max=1, dead_letter=queue))
    assert theirs.declare("elsewhere", f"{signed.other}/eu-west-1")


def statement(effect: str, account: str, *actions: str) -> dict[str, Any]:
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Sid": "s", "Effect": effect, "Principal": {"AWS": account}, "Action": [f"sqs:{one}" for one in actions], "Resource": "*"}
        ],
    }


def test_a_policy_opens_a_queue_to_others_for_what_it_names(signed: Signed) -> None:
    mine, theirs = signed.stranger(), signed.stranger(signed.other_key)
    queue = mine.declare("orders")
    signed.configure(queue, statement("Allow", signed.other, "SendMessage"))
    space = f"{signed.shop}/us-east-1"
    opened, rules = theirs.opened(theirs.ask("OPEN", text(space) + text("orders")))
    assert opened == queue and rules == {"extra": {}}
    assert theirs.push(record([queue], [b"from outside"]))
    for act in (
        lambda: theirs.pull(queue),
        lambda: theirs.consume(queue, 1) and theirs.answer(theirs.number),
        lambda: theirs.counts(queue),
        lambda: theirs.ask("PURGE", struct.pack("<Q", queue)),
        lambda: theirs.ask("DROP", struct.pack("<Q", queue)),
        lambda: theirs.tap_open(queue, "tap"),
        lambda: theirs.peek(queue),
    ):
        refused("ACCESS_DENIED", act)
    assert [one.body for one in mine.pull(queue)] == [b"from outside"]
    # What is taken back is gone at once, also for connections that have the queue open.
    signed.configure(queue, statement("Allow", signed.other, "ReceiveMessage"))
    refused("ACCESS_DENIED", lambda: theirs.push(record([queue], [b"x"])))
    assert theirs.pull(queue) == []


def test_completing_and_pulling_in_one_request_needs_both_rights(signed: Signed) -> None:
    mine, theirs = signed.stranger(), signed.stranger(signed.other_key)
    queue = mine.declare("orders")
    signed.configure(queue, statement("Allow", signed.other, "ReceiveMessage"))
    theirs.opened(theirs.ask("OPEN", text(f"{signed.shop}/us-east-1") + text("orders")))
    mine.push(record([queue], [b"a", b"b", b"c"]))
    got = theirs.pull(queue, 2)
    for named in (got[:1], got):
        refused("ACCESS_DENIED", lambda named=named: theirs.ask("COMPLETE_PULL", theirs.pull_bytes(queue) + items(named)))
    counts = mine.counts(queue)
    assert (counts["visible"], counts["leased"]) == (1, 2)
    signed.configure(queue, statement("Allow", signed.other, "DeleteMessage"))
    refused("ACCESS_DENIED", lambda: theirs.ask("COMPLETE_PULL", theirs.pull_bytes(queue) + items(got)))
    assert theirs.complete(queue, got) == [True, True]


def test_a_policy_can_deny_the_owner_too(signed: Signed) -> None:
    mine = signed.stranger()
    queue = mine.declare("orders")
    signed.configure(queue, statement("Deny", signed.shop, "ReceiveMessage", "DeleteMessage"))
    mine.push(record([queue], [b"x"]))
    refused("ACCESS_DENIED", lambda: mine.pull(queue))
    assert mine.counts(queue)["visible"] == 1


def test_producers_of_two_accounts_do_not_meet(signed: Signed) -> None:
    mine, theirs = signed.stranger(), signed.stranger(signed.other_key)
    identity = b"same name".ljust(16, b"\0")
    given, epoch, _ = struct.unpack("<16sQQ", mine.ask("PRODUCER", identity).payload)
    other, other_epoch, _ = struct.unpack("<16sQQ", theirs.ask("PRODUCER", identity).payload)
    assert given != other and epoch == other_epoch == 1
    queue = theirs.declare("q")
    refused("NOT_OPENED", lambda: theirs.push(record([queue], [b"x"], number=(given, epoch, 1))))
    refused("NOT_OPENED", lambda: theirs.ask("SKIP", struct.pack("<16sQQ", given, epoch, 1)))
    refused("NOT_OPENED", lambda: theirs.push(record([queue], [b"x"], number=(identity, 1, 1))))
    assert theirs.push(record([queue], [b"x"], number=(other, 1, 1)))[0][0] == [1]


def test_quotas_hold_at_this_door_as_well(tmp_path: Path) -> None:
    signed = Signed(tmp_path, quota=QuotaDefaults(queue_messages=3, account_queues=2))
    try:
        stranger = signed.stranger()
        queue = stranger.declare("one")
        stranger.declare("two")
        refused("OVER_QUOTA", lambda: stranger.declare("three"))
        stranger.push(record([queue], [b"a", b"b"]))
        refused("OVER_QUOTA", lambda: stranger.push(record([queue], [b"c", b"d"])))
        stranger.push(record([queue], [b"c"]))
        refused("OVER_QUOTA", lambda: stranger.push(record([queue], [b"d"])))
    finally:
        signed.inside.close()


def test_requests_beyond_the_quota_are_told_when_to_come_again(tmp_path: Path) -> None:
    signed = Signed(tmp_path, still=True, quota=QuotaDefaults(account_requests=20))
    try:
        stranger = signed.stranger()
        queue = stranger.declare("one")
        error = None
        for _ in range(60):
            try:
                stranger.counts(queue)
            except Refused as caught:
                error = caught
                break
        assert error is not None and error.code == "THROTTLED" and 0 < error.first <= 1000
        signed.inside.advance(1)
        stranger.counts(queue)
    finally:
        signed.inside.close()


def test_administrative_acts_are_noted(tmp_path: Path) -> None:
    signed = Signed(tmp_path, audit=str(tmp_path / "audit.log"))
    try:
        stranger = signed.stranger()
        queue = stranger.declare("orders")
        stranger.ask("PURGE", struct.pack("<Q", queue))
        stranger.ask("DROP", struct.pack("<Q", queue))
        refused("NO_SUCH_QUEUE", lambda: stranger.ask("DROP", struct.pack("<Q", queue)))
    finally:
        signed.inside.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert [(one["action"], one["queue"], one["outcome"]) for one in lines] == [
        ("CreateQueue", "orders", "ok"), ("PurgeQueue", "orders", "ok"), ("DeleteQueue", "orders", "ok"),
        ("DeleteQueue", "", "NO_SUCH_QUEUE"),
    ]  # fmt: skip
    assert {(one["account"], one["key"]) for one in lines} == {(signed.shop, signed.key.access_key_id)}


def test_the_real_server_asks_for_proof_and_has_tls(tmp_path: Path) -> None:
    import ssl
    import subprocess

    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2"]
    try:
        subprocess.run([*command, "-subj", "/CN=localhost"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    environment = {"DOVETAIL_ACCESS_KEY_ID": "AKIAENVIRONMENT", "DOVETAIL_SECRET_ACCESS_KEY": "a-long-secret"}
    process = Process(
        "--store", "memory:", "--http", "off", "--auth", "signed", "--tls-cert", str(cert), "--tls-key", str(key), environment=environment
    ).begin()
    try:
        context = ssl.create_default_context(cafile=str(cert))
        context.check_hostname = False

        def stranger(secret: str) -> Stranger:
            raw = socket.create_connection(("127.0.0.1", process.port), 60)
            return Stranger(0, "AKIAENVIRONMENT", secret, sock=context.wrap_socket(raw))

        refused("ACCESS_DENIED", lambda: stranger("another-secret"))
        good = stranger("a-long-secret")
        queue = good.declare("q")
        bodies = [b"x" * 1000] * 500
        assert good.push(record([queue], bodies))[0][0] == list(range(1, 501))
        assert [one.body for one in good.pull(queue, 500)] == bodies
        with socket.create_connection(("127.0.0.1", process.port), 60) as plain:
            plain.sendall(struct.pack("<8sHHI", b"DOVETAIL", 1, 1, 0))
            assert b"DOVETAIL" not in plain.recv(100)
        good.close()
    finally:
        process.end()


def test_any_key_will_do_where_the_operator_said_so() -> None:
    process = Process("--store", "memory:", "--http", "off", "--auth", "any").begin()
    try:
        stranger = Stranger(process.port, "whoever", "whatever")
        assert stranger.auth == 0 and stranger.welcome.namespace == "default"
        stranger.close()
    finally:
        process.end()


def test_a_greeting_that_does_not_come_is_not_waited_for() -> None:
    # Told that its time is over, the one that trickles on must not run into a reset.
    inside = Inside(bounds=Bounds(greeting_s=0.2, linger_s=60))
    try:
        with (
            socket.create_connection(("127.0.0.1", inside.port), 60) as silent,
            socket.create_connection(("127.0.0.1", inside.port), 60) as slow,
        ):
            hello = struct.pack("<8sHHI", b"DOVETAIL", 1, 1, 0)
            for byte in hello[:8]:
                slow.sendall(bytes((byte,)))
                time.sleep(0.05)
            for raw in (silent, slow):
                data = b""
                try:
                    while piece := raw.recv(4096):
                        data += piece
                except ConnectionResetError:
                    pass
                assert data[4] == 130 and Stranger.error(data[16:]).code == "PROTOCOL"
    finally:
        inside.close()
