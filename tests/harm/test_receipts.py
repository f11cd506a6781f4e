"""Receipt handles that nobody gave: made up, cut, changed in one place, of another queue. None crashes or settles anything."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harm.inside import Inside, json_request, judge

URL = "http://x/000000000000/"
KINDS = {"standard": {}, "order.fifo": {"FifoQueue": "true"}}
LOOK = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


class House:
    """A queue with one message waiting and two leased, and their receipts."""

    def __init__(self, queue: str) -> None:
        self.inside = Inside()
        self.url = URL + queue
        for name in (queue, f"other-{queue}"):
            attributes = {**KINDS[queue], "VisibilityTimeout": "40000"}
            self.inside.call("CreateQueue", QueueName=name, Attributes=attributes)
            for number in range(3):
                more = {"MessageGroupId": str(number), "MessageDeduplicationId": str(number)} if attributes.get("FifoQueue") else {}
                self.inside.call("SendMessage", QueueUrl=URL + name, MessageBody=str(number), **more)
        self.receipts = self._receive(queue)
        self.others = self._receive(f"other-{queue}")
        self.held = self.counts()

    def _receive(self, name: str) -> list[str]:
        got = self.inside.call("ReceiveMessage", QueueUrl=URL + name, MaxNumberOfMessages=2)["Messages"]
        return [one["ReceiptHandle"] for one in got]

    def counts(self) -> dict[str, Any]:
        return {
            name: self.inside.call("PeekMessages", QueueUrl=URL + name)["Messages"]
            for name in (self.url.removeprefix(URL), "other-" + self.url.removeprefix(URL))
        }

    def try_everything(self, receipt: str) -> None:
        entry = {"Id": "a", "ReceiptHandle": receipt}
        for action, members in (
            ("DeleteMessage", {"ReceiptHandle": receipt}),
            ("ChangeMessageVisibility", {"ReceiptHandle": receipt, "VisibilityTimeout": 0}),
            ("DeleteMessageBatch", {"Entries": [entry]}),
            ("ChangeMessageVisibilityBatch", {"Entries": [{**entry, "VisibilityTimeout": 0}]}),
        ):
            request = json_request(action, json.dumps({"QueueUrl": self.url, **members}).encode())
            answer = self.inside.ask(request)
            judge(request, answer)
            assert answer is not None
            told = json.loads(answer.body)
            if action.endswith("Batch"):
                assert told["Successful"] == [] and told["Failed"][0]["Code"] in ("ReceiptHandleIsInvalid", "InvalidParameterValue"), told
            else:
                assert answer.status == 400 and told["__type"].endswith(("#ReceiptHandleIsInvalid", "#InvalidParameterValueException")), (
                    told
                )
        assert self.counts() == self.held


@pytest.fixture(scope="module", params=KINDS)
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    made = House(request.param)
    yield made
    made.inside.close()


@LOOK
@given(receipt=st.one_of(st.text(max_size=80), st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("="))))
def test_a_made_up_handle_settles_nothing(house: House, receipt: str) -> None:
    house.try_everything(receipt)


@LOOK
@given(data=st.data())
def test_a_handle_changed_in_one_place_settles_nothing(house: House, data: st.DataObject) -> None:
    receipt = data.draw(st.sampled_from(house.receipts))
    raw = bytearray(base64.urlsafe_b64decode(receipt + "=" * (-len(receipt) % 4)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    house.try_everything(base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("="))


@LOOK
@given(data=st.data())
def test_a_handle_with_another_letter_settles_nothing(house: House, data: st.DataObject) -> None:
    """In the text, where several spellings may mean the same bytes: only one of them is a handle."""
    receipt = data.draw(st.sampled_from(house.receipts))
    place = data.draw(st.integers(0, len(receipt)))
    more = data.draw(st.sampled_from(["", "A", "=", "==", " ", "\n", "%", "+", "/", "-", "_", "é", "\x00"]))
    cut = data.draw(st.integers(0, 2))
    changed = receipt[:place] + more + receipt[place + cut :]
    if changed != receipt:
        house.try_everything(changed)


def test_the_handle_of_another_queue_settles_nothing(house: House) -> None:
    for receipt in house.others:
        house.try_everything(receipt)


def test_the_right_handles_still_work_at_the_end(house: House) -> None:
    for receipt in house.receipts:
        house.inside.call("DeleteMessage", QueueUrl=house.url, ReceiptHandle=receipt)
    assert len(house.counts()[house.url.removeprefix(URL)]) == 1
