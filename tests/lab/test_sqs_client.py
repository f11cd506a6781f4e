"""The raw client: it reads answers however they are cut, counts what was refused, and sends exactly what it says it sends."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import count
from typing import Any

import pytest

from dovetail.lab.httpload import LoadFailed, Script, Tally, connect, percentile, play
from dovetail.lab.sqsload import SEND, TAKE, Load, play_load
from dovetail.lab.sqswire import Keys, Wire, handles

pytestmark = pytest.mark.slow

Answer = Callable[[dict[str, str], bytes], bytes]


def ok(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nServer: s\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@asynccontextmanager
async def serving(answer: Answer, cut: int = 1 << 20) -> AsyncIterator[int]:
    """A server on the loopback whose answers arrive in pieces of `cut` bytes; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
                told = answer(headers, await reader.readexactly(int(headers["content-length"])))
                for at in range(0, len(told), cut):
                    writer.write(told[at : at + cut])
                    if cut < len(told):
                        await writer.drain()
                        await asyncio.sleep(0)
                if not told:
                    return
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


class FakeSqs:
    """Queues of bodies, and what was asked of it. Its receipt handles hold what base64 may hold."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[dict[str, Any]]] = {}
        self.leased: dict[str, str] = {}
        self.actions: Counter[str] = Counter()
        self.sent: list[dict[str, Any]] = []
        self._numbers = count()

    def __call__(self, headers: dict[str, str], body: bytes) -> bytes:
        action = headers["x-amz-target"].removeprefix("AmazonSQS.")
        self.actions[action] += 1
        asked = json.loads(body)
        return ok(json.dumps(getattr(self, action)(asked), separators=(",", ":")).encode())

    def SendMessage(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.queues.setdefault(asked["QueueUrl"], deque()).append(asked)
        self.sent.append(asked)
        return {"MessageId": "m"}

    def SendMessageBatch(self, asked: dict[str, Any]) -> dict[str, Any]:
        for entry in asked["Entries"]:
            self.SendMessage({"QueueUrl": asked["QueueUrl"], **entry})
        return {"Successful": [{"Id": entry["Id"]} for entry in asked["Entries"]], "Failed": []}

    def ReceiveMessage(self, asked: dict[str, Any]) -> dict[str, Any]:
        waiting, got = self.queues.get(asked["QueueUrl"], deque()), []
        while waiting and len(got) < asked["MaxNumberOfMessages"]:
            handle = f"a+/{next(self._numbers)}=="
            self.leased[handle] = asked["QueueUrl"]
            got.append({"Body": waiting.popleft()["MessageBody"], "ReceiptHandle": handle})
        return {"Messages": got} if got else {}

    def DeleteMessage(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self.leased.pop(asked["ReceiptHandle"]) == asked["QueueUrl"]
        return {}

    def DeleteMessageBatch(self, asked: dict[str, Any]) -> dict[str, Any]:
        for entry in asked["Entries"]:
            self.DeleteMessage({"QueueUrl": asked["QueueUrl"], **entry})
        return {"Successful": [{"Id": entry["Id"]} for entry in asked["Entries"]]}


async def sent(load: Load) -> dict[str, Any]:
    return (await play_load([SEND], asdict(load)))[SEND]


async def taken(load: Load) -> dict[str, Any]:
    return (await play_load([TAKE], asdict(load)))[TAKE]


def asking(requests: list[bytes], answers: list[bytes]) -> Callable[[int, Tally], Script]:
    def script(_: int, tally: Tally) -> Script:
        for request in requests:
            answers.append((yield request))

    return script


@pytest.mark.parametrize("cut", [1, 7, 40, 1 << 20])
async def test_an_answer_is_read_whole_however_it_is_cut(cut: int) -> None:
    answers: list[bytes] = []
    tally = Tally()
    async with serving(lambda _, body: ok(body * 3), cut) as port:
        wire = Wire(port)
        await play(port, 1, asking([wire.request("One", b"a\r\n\r\nb"), wire.request("Two", b"")], answers), tally)
    assert answers == [b"a\r\n\r\nb" * 3, b""] and (tally.refused, tally.refusal) == (0, "")


async def test_what_is_not_200_is_counted_and_the_first_is_kept_in_its_own_words() -> None:
    answers: list[bytes] = []
    tally = Tally()
    async with serving(lambda _, body: ok(body, b"400 Bad Request")) as port:
        wire = Wire(port)
        await play(port, 1, asking([wire.request("X", b"first"), wire.request("X", b"second")], answers), tally)
    assert answers == [b"first", b"second"] and tally.refused == 2
    assert tally.refusal.startswith("HTTP/1.1 400") and tally.refusal.endswith("first")


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"], ids=["closed", "without-length"]
)
async def test_a_server_that_closes_or_answers_otherwise_ends_the_load_with_an_error(answer: bytes) -> None:
    async with serving(lambda _, body: answer) as port:
        with pytest.raises(LoadFailed):
            await play(port, 1, asking([Wire(port).request("X", b"")], []), Tally())


async def test_a_script_that_fails_fails_the_load() -> None:
    def script(_: int, tally: Tally) -> Script:
        yield Wire(port).request("X", b"")
        raise ValueError("not that")

    async with serving(lambda _, body: ok(b"")) as port:
        with pytest.raises(ValueError, match="not that"):
            await play(port, 2, script, Tally())


async def test_a_connection_is_asked_one_thing_at_a_time() -> None:
    async with serving(lambda headers, body: ok(headers["x-amz-target"].encode())) as port:
        wire = Wire(port)
        (connection,) = await connect(port, 1, Tally())
        assert [await connection.ask(wire.ask(action, Member=1)) for action in ("One", "Two")] == [b"AmazonSQS.One", b"AmazonSQS.Two"]
        connection.close()


@pytest.mark.parametrize(
    ("messages", "connections", "batch"), [(1, 4, 1), (10, 4, 1), (95, 8, 10), (100, 64, 10), (2000, 64, 10), (7, 1, 3)]
)
def test_the_shares_of_all_connections_are_all_the_messages(messages: int, connections: int, batch: int) -> None:
    load = Load(1, "u-{}", messages, connections, batch)
    shares = [load.share(number) for number in range(connections)]
    assert sum(shares) == messages and min(shares) >= 0 and max(shares) - min(shares) <= batch


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("queues", [1, 3, 20])
async def test_what_is_sent_is_what_is_taken_over_any_number_of_queues(batch: int, queues: int) -> None:
    fake = FakeSqs()
    async with serving(fake) as port:
        load = Load(port, "http://h/0/queue-{}", 120, 4, batch, queues)
        made = await sent(load)
        assert {url: len(waiting) for url, waiting in fake.queues.items()}.keys() <= {load.url.format(number) for number in range(queues)}
        assert sum(map(len, fake.queues.values())) == 120
        found = await taken(load)
    assert (made["messages"], made["refused"], found["messages"], found["refused"], found["empty"]) == (120, 0, 120, 0, 0)
    assert not fake.leased and not any(fake.queues.values())
    calls = 120 // batch
    ending = "" if batch == 1 else "Batch"
    assert fake.actions == {f"SendMessage{ending}": calls, "ReceiveMessage": calls, f"DeleteMessage{ending}": calls}
    assert {asked["MessageBody"] for asked in fake.sent} == {"x" * 100} and "MessageGroupId" not in fake.sent[0]


async def test_messages_of_a_fifo_load_have_ids_of_their_own_and_go_to_the_groups_in_turn() -> None:
    fake = FakeSqs()
    async with serving(fake) as port:
        load = Load(port, "http://h/0/queue-{}.fifo", 60, 4, 10, groups=6)
        for _ in range(2):
            await sent(load)
    assert len({asked["MessageDeduplicationId"] for asked in fake.sent}) == 120
    assert Counter(asked["MessageGroupId"] for asked in fake.sent) == {f"g{number}": 20 for number in range(6)}


async def test_messages_of_a_tenant_name_it_and_nothing_else_of_fifo() -> None:
    fake = FakeSqs()
    async with serving(fake) as port:
        await sent(Load(port, "http://h/0/queue-{}", 20, 2, 10, tenant="noisy"))
    assert {asked["MessageGroupId"] for asked in fake.sent} == {"noisy"} and "MessageDeduplicationId" not in fake.sent[0]


async def test_a_load_that_finds_nothing_ends_and_says_so() -> None:
    async with serving(FakeSqs()) as port:
        found = await taken(Load(port, "http://h/0/queue-{}", 40, 4, 1, 8))
    assert (found["messages"], found["empty"]) == (0, 8), "every queue was looked at once"


async def test_entries_that_are_refused_inside_a_batch_are_counted() -> None:
    async with serving(lambda _, body: ok(b'{"Successful":[],"Failed":[{"Id":"0"}]}')) as port:
        made = await sent(Load(port, "http://h/0/queue-{}", 20, 1, 10))
    assert made["refused"] == 2


async def test_no_operation_begins_after_its_time() -> None:
    async with serving(FakeSqs()) as port:
        made = await sent(Load(port, "http://h/0/queue-{}", 40, 4, seconds_max=0))
    assert made["messages"] == 0


def test_handles_are_found_as_they_stand() -> None:
    assert handles(b'{"Messages":[{"ReceiptHandle":"a+/=\\/1","Body":"x"},{"Body":"y","ReceiptHandle":"b"}]}') == [b"a+/=\\/1", b"b"]
    assert handles(b"{}") == []


def test_a_percentile_is_a_value_that_was_seen() -> None:
    assert [percentile([1, 2, 3, 4], percent) for percent in (0, 50, 99, 100)] == [1, 3, 4, 4] and percentile([], 99) == 0


@pytest.mark.parametrize("body", [b"{}", b'{"QueueUrl":"http://127.0.0.1/0/q","MessageBody":"\xc3\xa4"}'])
def test_a_signature_is_the_one_that_botocore_makes(body: bytes) -> None:
    auth = pytest.importorskip("botocore.auth")
    awsrequest, credentials = pytest.importorskip("botocore.awsrequest"), pytest.importorskip("botocore.credentials")
    made = Wire(4711, Keys("AKIATEST", "secret/+")).request("SendMessage", body)
    head, _, sent = made.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    signed = {name: value for name, value in headers.items() if name in ("Content-Type", "X-Amz-Target", "X-Amz-Date")}
    request = awsrequest.AWSRequest("POST", "http://127.0.0.1:4711/", headers=signed, data=body)
    request.context["timestamp"] = headers["X-Amz-Date"]
    signer = auth.SigV4Auth(credentials.Credentials("AKIATEST", "secret/+"), "sqs", "us-east-1")
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    assert sent == body and headers["Authorization"].endswith(f"Signature={signature}")


def test_an_unsigned_request_has_no_authorization() -> None:
    assert Wire(1).request("A", b"{}") == (
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Type: application/x-amz-json-1.0\r\nX-Amz-Target: AmazonSQS.A\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
