"""Promises of `dovetail queue`: what it does to a real node, what people and programs read of it, and how it says that it could not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli import main
from dovetail.cli.sqsclient import Client, Keys, signature
from dovetail.doors.sqs.sigv4 import Verifier
from dovetail.errors import BadRequest
from dovetail.service.accounts import Key
from dovetail.testing import Server, serve
from tests.clients.node import Node

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def one() -> Iterator[Server]:
    with serve() as made:
        yield made


@pytest.fixture
def server(one: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    one.reset()
    for name in list(os.environ):
        if name.startswith(("AWS_", "DOVETAIL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DOVETAIL_ENDPOINT", one.url)
    return one


class Keyboard(TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command in this process: (exit code, stdout, stderr)."""

    def go(*arguments: str, stdin: bytes = b"", keyboard: bool = False) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", (Keyboard if keyboard else TextIOWrapper)(BytesIO(stdin)))
        try:
            code = main(["queue", *arguments])
        except SystemExit as left:
            code = int(left.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return go


def told(run: Run, *arguments: str, stdin: bytes = b"") -> Any:
    """What a program reads."""
    code, out, err = run(*arguments, "--json", stdin=stdin)
    assert (code, err) == (0, "")
    return json.loads(out)


def command(server: Server, *arguments: str, stdin: bytes | None = None) -> tuple[int, str, str]:
    """The command as a person runs it."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src"),
        "DOVETAIL_ENDPOINT": server.url,
    }
    program = [sys.executable, "-m", "dovetail", "queue", *arguments]
    done = subprocess.run(program, env=environment, input=stdin or b"", capture_output=True, check=False, timeout=60)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_the_way_of_a_message_by_hand(server: Server) -> None:
    made = command(server, "create", "orders", "visibility_timeout=5m", "tags.team=shop")
    assert made == (0, f"{server.url}/000000000000/orders\n", "")
    code, identity, err = command(server, "send", "orders", "--attribute", "shop=north", stdin="two dozen eggs ♥".encode())
    assert (code, err) == (0, "")
    code, out, err = command(server, "receive", "orders", "--delete")
    head, body, end = out.split("\n", 2)
    assert (code, err, body, end) == (0, "", "two dozen eggs ♥", "\n")
    facts = head.split("  ")
    assert facts[0] == identity.strip() and facts[1].startswith("sent 2") and facts[2:] == ["receive 1", "shop=north"]
    assert command(server, "ls") == (0, "name    visible  in flight  delayed\norders        0          0        0\n", "")
    assert command(server, "rm", "orders") == (0, "orders is removed\n", "")
    assert command(server, "ls") == (0, "", "there are no queues: dovetail queue create NAME\n")


# Queues


def test_ls_lists_by_prefix_with_counts(server: Server, run: Run) -> None:
    for name in ("orders", "orders-dead", "bills.fifo"):
        told(run, "create", name)
    told(run, "send", "orders", "now")
    told(run, "send", "orders", "later", "--delay", "60")
    told(run, "send", "orders", "taken")
    told(run, "receive", "orders")
    at = f"{server.url}/000000000000/"
    assert told(run, "ls", "ord") == [
        {"name": "orders", "visible": 1, "in_flight": 1, "delayed": 1, "url": at + "orders"},
        {"name": "orders-dead", "visible": 0, "in_flight": 0, "delayed": 0, "url": at + "orders-dead"},
    ]
    assert run("ls", "--names") == (0, "bills.fifo\norders\norders-dead\n", "")
    assert told(run, "ls", "nothing") == []


def test_ls_goes_on_behind_the_first_page(server: Server, run: Run) -> None:
    server.reset()
    client = Client(server.url, "us-east-1", None)
    for number in range(1001):
        client.call("CreateQueue", QueueName=f"q{number:04}")
    assert told(run, "ls", "--names") == [f"q{number:04}" for number in range(1001)]


def test_create_takes_what_a_file_of_queues_takes(run: Run) -> None:
    told(run, "create", "orders-dead", "retention=14d")
    told(run, "create", "orders", "VisibilityTimeout=60", "delay=5", "dead_letter=orders-dead", "max_receives=3", "tags.team=shop")
    told(run, "create", "bills.fifo", "content_based_deduplication=true")
    orders = told(run, "show", "orders")
    assert orders["tags"] == {"team": "shop"} and orders["dead_letter_sources"] == []
    wanted = {"VisibilityTimeout": "60", "DelaySeconds": "5"}
    assert {name: orders["attributes"][name] for name in wanted} == wanted
    arn = "arn:aws:sqs:us-east-1:000000000000:orders-dead"
    assert json.loads(orders["attributes"]["RedrivePolicy"]) == {"deadLetterTargetArn": arn, "maxReceiveCount": "3"}
    dead = told(run, "show", "orders-dead")
    assert dead["attributes"]["MessageRetentionPeriod"] == "1209600" and dead["dead_letter_sources"] == ["orders"]
    bills = told(run, "show", "bills.fifo")["attributes"]
    assert (bills["FifoQueue"], bills["ContentBasedDeduplication"]) == ("true", "true")


def test_show_is_a_table_for_people(run: Run) -> None:
    told(run, "create", "dead")
    told(run, "create", "orders", "dead_letter=dead", "tags.team=shop")
    rows = [line.split(maxsplit=1) for line in run("show", "orders")[1].splitlines()]
    assert ["VisibilityTimeout", "30"] in rows and ["tags.team", "shop"] in rows
    assert any(name == "CreatedTimestamp" and value.endswith("Z") for name, value in rows)
    last = run("show", "dead")[1].splitlines()[-1]
    assert last.startswith("dead letters of  ") and last.endswith("  orders")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("visibility_timeout",), "visibility_timeout: must be KEY=VALUE, such as visibility_timeout=60"),
        (
            ("visibility_timeout=x",),
            "visibility_timeout: 'x': must be 0 to 1073741824 seconds, as a whole number or as 90s, 5m, 12h or 4d",
        ),
        (("content_based_deduplication=true",), "content_based_deduplication: belongs to a FIFO queue, whose name ends with .fifo"),
        (("max_receives=5",), "max_receives: says after how many receives a message goes to dead_letter, which is missing"),
    ],
)
def test_create_complains_about_a_slip(run: Run, arguments: tuple[str, ...], complaint: str) -> None:
    assert run("create", "orders", *arguments) == (2, "", f"dovetail: {complaint}\n")
    assert told(run, "ls") == []


def test_what_the_node_refuses_is_said_in_its_words(run: Run) -> None:
    code, out, err = run("create", "orders", "delay=901")
    assert (code, out) == (1, "") and err.startswith("dovetail: ") and "DelaySeconds" in err and err.count("\n") == 1


def test_purge_and_rm_do_it_where_nobody_can_be_asked(run: Run) -> None:
    told(run, "create", "orders")
    told(run, "send", "orders", "x")
    assert run("purge", "orders") == (0, "orders is empty\n", "")
    assert told(run, "ls")[0]["visible"] == 0
    assert run("rm", "orders") == (0, "orders is removed\n", "")


@pytest.mark.parametrize(("answer", "code", "left"), [(b"y\n", 0, 0), (b"YES\n", 0, 0), (b"n\n", 1, 1), (b"\n", 1, 1), (b"", 1, 1)])
def test_a_person_is_asked_first(run: Run, answer: bytes, code: int, left: int) -> None:
    told(run, "create", "orders")
    told(run, "send", "orders", "x")
    got, out, err = run("purge", "orders", stdin=answer, keyboard=True)
    assert got == code and err.startswith("delete the 1 messages of orders? [y/N] ")
    assert told(run, "ls")[0]["visible"] == left


# Messages


def test_options_may_stand_anywhere(run: Run) -> None:
    told(run, "create", "orders", "--region", "us-east-1", "delay=0")
    told(run, "send", "orders", "--attribute", "a=b", "in the middle")
    told(run, "send", "--attribute", "a=b", "orders", "before")
    told(run, "send", "orders", "behind", "--attribute", "a=b")
    assert told(run, "receive", "--max", "10", "orders", "--delete")[0]["Body"] == "in the middle"
    assert run("send", "orders", "one", "two")[0] == 2
    assert run("send")[0] == 2


def test_at_a_keyboard_a_missing_body_is_asked_for_in_words(run: Run) -> None:
    told(run, "create", "orders")
    complaint = "dovetail: there is no body: give it as BODY, with --file FILE, or through a pipe\n"
    assert run("send", "orders", keyboard=True) == (2, "", complaint)


def test_a_body_comes_from_the_argument_a_file_or_a_pipe(run: Run, tmp_path: Path) -> None:
    told(run, "create", "orders")
    file = tmp_path / "body.txt"
    file.write_bytes(b"from a file\nwith two lines")
    for arguments, stdin in ((("given",), b""), (("--file", str(file)), b""), (("--file", "-"), b"dash"), ((), b"from a pipe")):
        (sent,) = told(run, "send", "orders", *arguments, stdin=stdin)
        assert sent.keys() == {"id"}
    got = [one["Body"] for one in told(run, "receive", "orders", "--max", "10")]
    assert got == ["given", "from a file\nwith two lines", "dash", "from a pipe"]


def test_lines_are_messages_of_their_own(run: Run) -> None:
    told(run, "create", "orders")
    text = "".join(f"line {number}\n" for number in range(25)) + "\nlast without an end"
    assert run("send", "orders", "--lines", stdin=text.encode()) == (0, "26 messages sent\n", "")
    got = run("receive", "orders", "--max", "100", "--bodies", "--delete")
    assert got == (0, "".join(f"line {number}\n" for number in range(25)) + "last without an end\n", "")
    assert told(run, "receive", "orders") == []


def test_large_lines_go_in_smaller_batches(run: Run) -> None:
    told(run, "create", "orders")
    assert run("send", "orders", "--lines", stdin=(b"x" * 300_000 + b"\n") * 5) == (0, "5 messages sent\n", "")


def test_a_fifo_queue_is_sent_to_with_group_and_deduplication(run: Run) -> None:
    told(run, "create", "bills.fifo")
    (sent,) = told(run, "send", "bills.fifo", "pay 5", "--group", "g", "--deduplication", "d")
    assert sent.keys() == {"id", "sequence"}
    (got,) = told(run, "receive", "bills.fifo")
    assert (got["Attributes"]["MessageGroupId"], got["Attributes"]["MessageDeduplicationId"]) == ("g", "d")


def test_without_delete_a_message_comes_back_and_with_it_not(server: Server, run: Run) -> None:
    told(run, "create", "orders")
    told(run, "send", "orders", "x")
    (first,) = told(run, "receive", "orders", "--visibility", "600")
    assert told(run, "receive", "orders") == []
    server.advance(600)
    (second,) = told(run, "receive", "orders", "--delete", "--wait", "1")
    assert first["MessageId"] == second["MessageId"] and second["Attributes"]["ApproximateReceiveCount"] == "2"
    server.advance(600)
    assert run("receive", "orders") == (0, "", "orders has no messages to receive now\n")


def test_peek_shows_bodies_and_nobody_notices(server: Server, run: Run) -> None:
    told(run, "create", "orders")
    for body in ("first", "second\nhas \x85 two lines", "x" * 200):
        told(run, "send", "orders", body, "--group", "tenant")
    told(run, "send", "orders", "later", "--delay", "60")
    seen = told(run, "peek", "orders")
    assert [(one["Body"], one["State"]) for one in seen] == [
        ("first", "visible"),
        ("second\nhas \x85 two lines", "visible"),
        ("x" * 200, "visible"),
        ("later", "delayed"),
    ]
    assert told(run, "peek", "orders", "--max", "1", "--after", str(seen[0]["Sequence"])) == [seen[1]]
    code, out, err = run("peek", "orders")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["sequence", "state", "sent", "receives", "group", "body"]
    assert lines[2].endswith("  tenant  second has   two lines") and lines[3].endswith("  " + "x" * 100 + "…")
    assert told(run, "ls")[0]["visible"] == 3
    assert [one["Attributes"]["ApproximateReceiveCount"] for one in told(run, "receive", "orders", "--max", "3")] == ["1"] * 3


def test_what_could_steer_a_terminal_is_not_printed_to_people(run: Run) -> None:
    told(run, "create", "orders")
    told(run, "send", "orders", "red \x9b31m alert")
    assert "red \N{REPLACEMENT CHARACTER}31m alert\n" in run("receive", "orders", "--visibility", "0")[1]
    assert run("receive", "orders", "--bodies")[1] == "red \x9b31m alert\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "complaint"),
    [
        (("body", "--file", "x"), b"", "BODY and --file: one of them"),
        (("body", "--lines"), b"", "BODY and --lines: lines come from --file or through a pipe"),
        (("--file", "/not/there"), b"", "--file /not/there: cannot be read: No such file or directory"),
        (("--attribute", "shop", "body"), b"", "--attribute shop: must be NAME=VALUE"),
        (("--lines", "--deduplication", "x"), b"a\n", "--deduplication names one message, and --lines sends many"),
        ((), b"\xff", "the body is not UTF-8 text, and SQS carries text only; encode it first, for instance with base64"),
        ((), b"x" * (1 << 20) + b"y", "the body is larger than 1,048,576 bytes, which is the most that a message may have"),
    ],
)
def test_send_complains_about_a_slip(run: Run, arguments: tuple[str, ...], stdin: bytes, complaint: str) -> None:
    told(run, "create", "orders")
    assert run("send", "orders", *arguments, stdin=stdin) == (2, "", f"dovetail: {complaint}\n")
    assert told(run, "ls")[0]["visible"] == 0


# Dead letters


def _dead(server: Server, run: Run, count: int) -> None:
    """So many messages in `dead` that came from `orders`."""
    told(run, "create", "dead")
    told(run, "create", "orders", "dead_letter=dead", "max_receives=1", "visibility_timeout=1")
    told(run, "send", "orders", "--lines", stdin=b"x\n" * count)
    assert len(told(run, "receive", "orders", "--max", str(count))) == count
    server.advance(2)
    assert told(run, "receive", "orders") == []
    assert [one["visible"] for one in told(run, "ls")] == [count, 0]


def test_redrive_sends_dead_letters_home_and_tells_how_many(server: Server, run: Run) -> None:
    _dead(server, run, 12)
    assert run("redrive", "dead") == (0, "completed: 12 messages moved\n", "")
    assert [one["visible"] for one in told(run, "ls")] == [0, 12]
    (task,) = told(run, "redrive", "dead", "--status")
    assert (task["status"], task["moved"], task["to"]) == ("completed", 12, "their sources")
    assert run("redrive", "dead", "--cancel") == (1, "", "dovetail: no redrive of dead is running\n")


def test_redrive_can_go_elsewhere_and_be_left_alone_and_be_cancelled(server: Server, run: Run) -> None:
    _dead(server, run, 10)
    told(run, "create", "elsewhere")
    assert run("redrive", "dead", "--to", "elsewhere", "--rate", "1", "--detach") == (0, "running; --status shows how far it is\n", "")
    told_so = told(run, "redrive", "dead", "--cancel")
    assert told_so["status"] == "cancelled"
    counts = {one["name"]: one["visible"] for one in told(run, "ls")}
    assert counts == {"dead": 10 - told_so["moved"], "elsewhere": told_so["moved"], "orders": 0}
    assert run("redrive", "dead", "--to", "gone")[2] == "dovetail: there is no queue gone; `dovetail queue ls` shows those that there are\n"


# When it cannot


@pytest.mark.parametrize("verb", ["show", "send", "receive", "peek", "purge", "rm", "redrive"])
def test_a_queue_that_there_is_not_is_said_in_one_line(run: Run, verb: str) -> None:
    complaint = "dovetail: there is no queue orders; `dovetail queue ls` shows those that there are\n"
    assert run(verb, "orders", *(["body"] if verb == "send" else [])) == (1, "", complaint)


def test_a_node_that_does_not_run_is_said_with_what_to_do(run: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert run("ls", "--endpoint", endpoint) == (
            1,
            "",
            f"dovetail: nothing answers at {endpoint} (Connection refused). `dovetail serve` starts a node; --endpoint or DOVETAIL_ENDPOINT"
            " names another\n",
        )


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9324", "ftp://x", "http://", "http://x:port", "http://x:99999", "http://x/path"])
def test_an_endpoint_that_is_none_is_refused(run: Run, endpoint: str) -> None:
    complaint = f"dovetail: --endpoint {endpoint}: must be an address such as http://127.0.0.1:9324\n"
    assert run("ls", "--endpoint", endpoint) == (2, "", complaint)


def test_the_endpoint_is_found_as_aws_tools_find_it(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    told(run, "create", "orders")
    monkeypatch.delenv("DOVETAIL_ENDPOINT")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", server.url)
    assert told(run, "ls", "--names") == ["orders"]


def test_accounts_and_regions_are_kept_apart(run: Run) -> None:
    told(run, "create", "mine")
    told(run, "create", "theirs", "--account", "111111111111")
    told(run, "create", "far", "--region", "eu-west-1")
    assert told(run, "ls", "--names") == ["mine"]
    assert told(run, "ls", "--names", "--account", "111111111111") == ["theirs"]
    assert told(run, "ls", "--names", "--region", "eu-west-1") == ["far"]
    assert run("ls", "--account", "me") == (2, "", "dovetail: --account me: must be twelve digits\n")


def test_a_signature_of_ours_is_one_that_the_door_accepts_and_a_changed_body_is_not() -> None:
    key = Key(access_key_id="AKIAKEY", secret="secret/+", account="123456789012", created_s=0, session_token="token==")
    now_s = time.time()
    headers = {"host": "localhost:1", "x-amz-target": "AmazonSQS.ListQueues", "content-type": "application/x-amz-json-1.0"}
    headers |= signature(headers, b"{}", "eu-west-1", Keys(key.access_key_id, key.secret, key.session_token), now_s)
    sent: Mapping[bytes, bytes] = {name.encode(): value.encode() for name, value in headers.items()}
    signed = Verifier(lambda _: key).verify("POST", "/", b"", sent, b"{}", now_s)
    assert (signed.access_key_id, signed.account, signed.region) == ("AKIAKEY", "123456789012", "eu-west-1")
    with pytest.raises(BadRequest):
        Verifier(lambda _: key).verify("POST", "/", b"", sent, b"{ }", now_s)
    assert "secret" not in repr(Keys(key.access_key_id, key.secret))


def test_a_node_that_asks_who_calls_is_called_with_a_key_and_says_so_without(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"DOVETAIL_ACCESS_KEY_ID": "AKIAFORTHISTEST", "DOVETAIL_SECRET_ACCESS_KEY": "a-secret-of-sixteen-or-more"}
    with Node(tmp_path, "--store", "memory:", "--auth", "signed", environment=keys) as node:
        monkeypatch.setenv("DOVETAIL_ENDPOINT", node.url)
        code, out, err = run("ls")
        assert (code, out) == (1, "") and err.endswith(
            "This node asks who calls: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key of its accounts\n"
        )
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["DOVETAIL_ACCESS_KEY_ID"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["DOVETAIL_SECRET_ACCESS_KEY"])
        told(run, "create", "orders")
        told(run, "send", "orders", "signed")
        assert [one["Body"] for one in told(run, "receive", "orders", "--delete")] == ["signed"]
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        code, out, err = run("ls")
        assert (code, out) == (1, "") and "signature" in err and "another" not in err
