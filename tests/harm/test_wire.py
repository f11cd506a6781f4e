"""What means harm, over raw sockets against a real node: others are served meanwhile, memory stays bounded, every refusal is a 4xx or a
closed connection. The `witness` of conftest.py checks the first two in every test."""

from __future__ import annotations

import itertools
import json
import random
import socket
import time

import pytest

from tests.clients.node import Node
from tests.harm.conftest import Witness
from tests.harm.wire import FORM, LIST, answers_of, attack, call, connect, post

MIB = 1 << 20


def test_a_header_of_a_gibibyte_is_refused_long_before_its_end(victim: Node, witness: Witness) -> None:
    pieces = itertools.chain([b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: "], itertools.repeat(b"x" * 65_536, 16_384))
    outcome = attack(victim, pieces)
    assert outcome.closed and outcome.statuses in ([431], [400], []), outcome.received[:200]
    assert outcome.sent_bytes < 64 * MIB, "it was read for seconds after it was refused"


@pytest.mark.parametrize("line", [b"X-%d: y\r\n", b"Accept: %d\r\n"], ids=["many names", "one name"])
def test_a_million_headers_are_refused(victim: Node, witness: Witness, line: bytes) -> None:
    lines = (b"".join(line % number for number in range(first, first + 1000)) for first in range(0, 1_000_000, 1000))
    outcome = attack(victim, itertools.chain([b"GET / HTTP/1.1\r\nHost: x\r\n"], lines))
    assert outcome.closed and outcome.statuses in ([431], [400], []), outcome.received[:200]


def test_a_target_without_end_is_refused(victim: Node, witness: Witness) -> None:
    outcome = attack(victim, itertools.chain([b"GET /"], itertools.repeat(b"a" * 65_536, 1_000)))
    assert outcome.closed and outcome.statuses in ([414], [431], [400], []), outcome.received[:200]


@pytest.mark.parametrize("length", ["99999999999", "9" * 30, "-1", "+5", "0x10", "5 5", "", "1e3", "٥"])
def test_a_length_that_nobody_could_mean_is_refused_before_the_body(victim: Node, witness: Witness, length: str) -> None:
    outcome = attack(victim, [f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode(), b"x" * 1000])
    assert outcome.closed and outcome.statuses in ([413], [400]), outcome.received[:200]


def test_chunks_without_end_are_refused(victim: Node, witness: Witness) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    outcome = attack(victim, itertools.chain([head], itertools.repeat(b"10000\r\n" + b"x" * 65_536 + b"\r\n", 4_000)))
    assert outcome.closed and outcome.statuses in ([413], []), outcome.received[:200]
    assert outcome.sent_bytes < 64 * MIB


@pytest.mark.slow
def test_a_flood_of_ten_thousand_requests_is_answered_in_order(victim: Node, witness: Witness) -> None:
    outcome = attack(victim, itertools.repeat(LIST * 100, 100), answers=10_000)
    assert outcome.statuses == [200] * 10_000
    numbers = [int(one.headers["x-amzn-requestid"][-12:], 16) for one in outcome.answers]
    assert numbers == sorted(numbers)


@pytest.mark.slow
def test_a_flood_whose_answers_nobody_reads_waits_outside(victim: Node, witness: Witness) -> None:
    """The caller is made to wait by its own socket; what it asked for is not piled up in the node."""
    with connect(victim) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 200 * MIB:
                sent += sock.send(LIST * 500)
        assert sent < 64 * MIB
        witness.is_served(10)


def test_a_thousand_connections_leave_room_for_others(victim: Node, witness: Witness) -> None:
    sockets = [connect(victim) for _ in range(1000)]
    try:
        for number, sock in enumerate(sockets):
            if number % 2:
                sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nbegun")
        witness.is_served(10)
        for sock in sockets[::200]:
            sock.sendall(LIST)
            assert answers_of(sock.recv(65_536))[0].status == 200
    finally:
        for sock in sockets:
            sock.close()


def test_a_caller_that_closes_its_half_is_gone_and_takes_no_message_along(victim: Node, witness: Witness) -> None:
    made = attack(victim, [call("CreateQueue", b'{"QueueName": "half"}')], answers=1).answers[0]
    url = json.loads(made.body)["QueueUrl"]
    poll = call("ReceiveMessage", json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}).encode())
    for _ in range(20):
        assert attack(victim, [poll], half_close=True).closed
    attack(victim, [call("SendMessage", json.dumps({"QueueUrl": url, "MessageBody": "still here"}).encode())], answers=1)
    (got,) = attack(victim, [call("ReceiveMessage", json.dumps({"QueueUrl": url, "WaitTimeSeconds": 5}).encode())], answers=1).answers
    assert json.loads(got.body)["Messages"][0]["Body"] == "still here"


def test_garbage_is_refused_or_ignored(victim: Node, witness: Witness) -> None:
    chance = random.Random(7)
    refused = 0
    for number in range(200):
        data = chance.randbytes(chance.randrange(1, 3000))
        if number % 2:
            # Half of it begins like a request: garbage in the headers, and behind them.
            data = b"POST / HTTP/1.1\r\nHost: x\r\n" + data.replace(b"\r\n\r\n", b"") + b"\r\n\r\n" + data
        outcome = attack(victim, [data], half_close=True)
        assert outcome.closed
        assert all(400 <= status < 500 or status in (501, 505) for status in outcome.statuses), (data, outcome.received)
        refused += bool(outcome.statuses)
    assert refused > 100


SMUGGLED = b"GET /?Action=DeleteQueue&QueueUrl=%2F000000000000%2Fwitness HTTP/1.1\r\nHost: x\r\n\r\n"
SHAPES = {
    "length and chunked": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "two equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello" + SMUGGLED,
    "lengths in a list": b"Content-Length: 0, %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked, identity": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "xchunked": b"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\nhello" + SMUGGLED,
    "chunked behind a tab": b"Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "blank before the colon": b"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a folded header": b"X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello" + SMUGGLED,
    "a bare line feed": b"X: y\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a size with a sign": b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "a size that overflows": b"Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "two hosts": b"Host: y\r\nContent-Length: 0\r\n\r\n",
    "NUL in a header": b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_request_that_could_be_read_in_two_ways_is_refused_and_ends_its_connection(victim: Node, witness: Witness, shape: str) -> None:
    outcome = attack(victim, [b"POST / HTTP/1.1\r\nHost: x\r\n" + SHAPES[shape]])
    assert outcome.closed and len(outcome.statuses) == 1, outcome.received
    assert outcome.statuses[0] in (400, 501, 413), outcome.received


JSON_SHAPES = {
    "deep lists": b"[" * 1_000_000,
    "deep objects": b'{"QueueUrl":' * 150_000 + b"1" + b"}" * 150_000,
    "deep inside a member": b'{"QueueUrl":"x","MessageBody":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep beside the members": b'{"QueueName":"x","Other":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a number without end": b'{"QueueUrl":"x","DelaySeconds":' + b"9" * 1_000_000 + b"}",
    "many members": b"{" + b",".join(b'"m%d":1' % number for number in range(100_000)) + b"}",
    "NUL bytes": b'{"QueueUrl":"\x00"}',
    "invalid UTF-8": b'{"QueueUrl":"\xff\xfe\xc0\xaf"}',
    "half a surrogate": b'{"QueueUrl":"x","MessageBody":"\\ud800"}',
    "UTF-16": '{"QueueUrl":"x"}'.encode("utf-16"),
    "a mark in front": b'\xef\xbb\xbf{"QueueUrl":"x"}',
    "two documents": b'{"QueueUrl":"x"}{"QueueUrl":"x"}',
    "not a number": b'{"QueueUrl":"x","DelaySeconds":NaN}',
    "nothing but blanks": b" " * 1_000_000,
    "a form": b"Action=SendMessage&MessageBody=x",
}


@pytest.mark.parametrize("shape", JSON_SHAPES)
def test_json_that_means_harm_is_refused(victim: Node, witness: Witness, shape: str) -> None:
    (answer,) = attack(victim, [call("SendMessage", JSON_SHAPES[shape])], answers=1).answers
    assert answer.status == 400 and set(json.loads(answer.body)) == {"__type", "message"}, answer
    assert len(answer.body) < 1000, "a refusal does not repeat what it refuses"


FORMS = {
    "100,000 fields": b"&".join(b"f%d=1" % number for number in range(100_000)),
    "100,000 entries": b"&".join(b"SendMessageBatchRequestEntry.%d.Id=a" % number for number in range(50_000)),
    "deep names": b"Action=SendMessage&" + b"a." * 100_000 + b"=1",
    "one name many times": b"Action=SendMessage&" + b"&".join([b"Attribute.1.Name=a"] * 10_000),
    "NUL bytes": b"Action=SendMessage&QueueUrl=%00\x00&MessageBody=\x00",
    "invalid UTF-8": b"Action=SendMessage&QueueUrl=%FF%C0%AF&MessageBody=%ED%A0%80",
    "raw bytes": b"Action=SendMessage&QueueUrl=\xff",
    "half an escape": b"Action=SendMessage&QueueUrl=%&MessageBody=%4",
    "no action": b"QueueUrl=x",
    "two actions": b"Action=ListQueues&Action=DeleteQueue",
    "JSON": b'{"QueueUrl":"x"}',
    "a multipart form": b'--b\r\nContent-Disposition: form-data; name="Action"\r\n\r\nListQueues\r\n--b--\r\n',
}


@pytest.mark.parametrize("shape", FORMS)
@pytest.mark.parametrize("kind", [FORM, "Content-Type: multipart/form-data; boundary=b", "Content-Type: application/json", "X: y"])
def test_forms_that_mean_harm_are_refused(victim: Node, witness: Witness, shape: str, kind: str) -> None:
    (answer,) = attack(victim, [post(FORMS[shape], kind)], answers=1).answers
    assert answer.status == 400 and answer.body.startswith(b'<?xml version="1.0"?><ErrorResponse '), answer
    assert len(answer.body) < 1000


@pytest.mark.slow
def test_slow_senders_are_given_up_and_cost_others_nothing(victim: Node, witness: Witness) -> None:
    """Two hundred heads and bodies, a byte now and then. A head has ten seconds in all, however often a byte comes."""
    heads = [connect(victim) for _ in range(100)]
    bodies = [connect(victim) for _ in range(100)]
    for sock in bodies:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
    begun = time.monotonic()
    alive = set(heads)
    for sock in heads:
        sock.sendall(b"GET / HTTP/1.1\r\nX-A: ")
        sock.setblocking(False)
    while alive:
        assert time.monotonic() - begun < 60, f"{len(alive)} dribbling heads are still kept"
        for sock in list(alive):
            try:
                sock.send(b"a")
                if answers_of(sock.recv(4096))[0].status == 408:
                    alive.discard(sock)
            except BlockingIOError:
                continue
            except OSError:
                alive.discard(sock)
        for sock in bodies:
            sock.send(b"a")
        witness.is_served(1)
        time.sleep(0.2)
    for sock in heads + bodies:
        sock.close()


@pytest.mark.slow
def test_long_names_that_differ_each_time_are_not_kept(victim: Node, witness: Witness) -> None:
    """What the door remembers of callers' texts (queue URLs, hosts, credentials) is bounded in bytes, not only in number."""
    padding = b"x" * MIB
    urls = (call("SendMessage", b'{"QueueUrl":"http://%d%s/000000000000/none","MessageBody":"x"}' % (n, padding)) for n in range(220))
    assert attack(victim, urls, answers=220).statuses == [400] * 220
    ask = b"POST / HTTP/1.1\r\nHost: %d%s\r\nAuthorization: %d%s\r\nX-Amz-Target: AmazonSQS.GetQueueUrl\r\nContent-Length: 20\r\n\r\n"
    hosts = (ask % (n, b"x" * 15_000, n, b"y" * 15_000) + b'{"QueueName":"none"}' for n in range(8_000))
    assert attack(victim, hosts, answers=8_000).statuses == [400] * 8_000
