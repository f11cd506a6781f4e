"""A quota refuses at its limit and not before, says which it was, and costs nothing where none is set."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dovetail
from dovetail.errors import OverQuota, Refused, Throttled
from dovetail.service import quotas as room
from dovetail.service.accounts import Quota
from dovetail.service.meters import Meters
from dovetail.service.metrics import Registry
from dovetail.service.quotas import KEPT_MAX, LOOK_MS, Bucket, Quotas, StoreLedger, Waiting


class Book:
    """A ledger that the test writes, and that counts how often it is looked at."""

    def __init__(self, **accounts: dict[int, Waiting]) -> None:
        self.accounts = accounts
        self.looks = 0

    def queues(self, account: str) -> list[int]:
        return list(self.accounts.get(account, ()))

    def waiting(self, queue: int) -> Waiting:
        self.looks += 1
        return next((found[queue] for found in self.accounts.values() if queue in found), Waiting(0, 0))


def refusal(ask: Callable[[], None]) -> OverQuota:
    with pytest.raises(OverQuota) as caught:
        ask()
    return caught.value


def test_a_bucket_gives_its_rate_at_once_and_then_as_time_passes() -> None:
    bucket = Bucket(10, 1000)
    assert [bucket.take(1000) for _ in range(11)] == [0] * 10 + [100]
    assert bucket.take(1099) == 1
    assert bucket.take(1100) == 0
    assert bucket.take(1100) == 100
    assert [bucket.take(999_999) for _ in range(11)] == [0] * 10 + [100], "it holds one second's worth, however long nobody came"


def test_a_clock_that_stands_still_or_goes_back_fills_no_bucket() -> None:
    bucket = Bucket(1, 5000)
    assert bucket.take(5000) == 0
    assert bucket.take(4000) == 1000
    assert bucket.take(5999) == 1 and bucket.take(6000) == 0


@pytest.mark.parametrize("rate", [1, 3, 7, 1000, 9973])
def test_over_a_long_time_a_bucket_gives_its_rate_and_no_more(rate: int) -> None:
    bucket = Bucket(rate, 0)
    seconds, given = 3, 0
    for now_ms in range(seconds * 1000 + 1):
        while given <= rate * (seconds + 1) and bucket.take(now_ms) == 0:
            given += 1
    assert given == rate + rate * seconds


def test_more_requests_than_an_account_may_make_are_refused_with_the_time_to_wait() -> None:
    told: list[str] = []
    quotas = Quotas(Book(), {"a": Quota(requests_per_s=2)}, refused=told.append)
    quotas.request("a", 0, 0)
    quotas.request("a", 7, 0)
    error = refusal(lambda: quotas.request("a", 7, 0))
    assert isinstance(error, Throttled) and (error.quota, error.retry_after_ms) == ("requests_per_s", 500)
    assert str(error) == "The account a may make 2 requests a second; try again in 500 ms."
    assert told == ["requests_per_s"]
    quotas.request("b", 7, 0)
    quotas.request("a", 7, 500)


def test_a_queue_has_a_rate_of_its_own_and_a_request_without_a_queue_is_not_its() -> None:
    quotas = Quotas(Book(), queue_quota=lambda queue: Quota(requests_per_s=1 if queue == 7 else None))
    quotas.request("a", 7, 0)
    quotas.request("a", 0, 0)
    quotas.request("a", 8, 0)
    assert refusal(lambda: quotas.request("b", 7, 0)).quota == "requests_per_s"


def test_a_queue_takes_messages_up_to_its_limit_and_not_one_more() -> None:
    book = Book(a={7: Waiting(8, 800)})
    quotas = Quotas(book, queue_default=Quota(messages_max=10))
    quotas.push("a", 7, 2, 200, 0)
    error = refusal(lambda: quotas.push("a", 7, 1, 1, 0))
    assert type(error) is OverQuota and error.quota == "messages_max"
    assert str(error) == "The queue has about 10 messages and may have 10."
    quotas.push("a", 8, 10, 1000, 0)


def test_a_batch_that_would_pass_the_limit_is_refused_whole() -> None:
    quotas = Quotas(Book(a={7: Waiting(8, 0)}), queue_default=Quota(messages_max=10))
    refusal(lambda: quotas.push("a", 7, 3, 0, 0))
    quotas.push("a", 7, 2, 0, 0)


def test_bytes_are_limited_like_messages() -> None:
    quotas = Quotas(Book(a={7: Waiting(1, 900)}), queue_default=Quota(bytes_max=1000))
    quotas.push("a", 7, 1, 100, 0)
    error = refusal(lambda: quotas.push("a", 7, 1, 1, 0))
    assert error.quota == "bytes_max" and str(error) == "The queue has about 1000 bytes of messages and may have 1000."


def test_an_account_is_held_to_the_sum_of_its_queues_and_others_are_not_counted() -> None:
    book = Book(a={1: Waiting(4, 0), 2: Waiting(4, 0)}, b={3: Waiting(1000, 0)})
    quotas = Quotas(book, account_default=Quota(messages_max=10))
    quotas.push("a", 1, 1, 0, 0)
    quotas.push("a", 2, 1, 0, 0)
    error = refusal(lambda: quotas.push("a", 1, 1, 0, 0))
    assert str(error) == "The account a has about 10 messages and may have 10."


def test_what_a_queue_refused_is_not_counted_for_its_account() -> None:
    quotas = Quotas(
        Book(a={1: Waiting(0, 0), 2: Waiting(0, 0)}),
        account_default=Quota(messages_max=10),
        queue_quota=lambda queue: Quota(messages_max=1 if queue == 1 else None),
    )
    refusal(lambda: quotas.push("a", 1, 5, 0, 0))
    quotas.push("a", 2, 10, 0, 0)


def test_what_was_consumed_makes_room_at_the_next_look() -> None:
    book = Book(a={7: Waiting(10, 0)})
    quotas = Quotas(book, queue_default=Quota(messages_max=10))
    refusal(lambda: quotas.push("a", 7, 1, 0, 0))
    book.accounts["a"][7] = Waiting(0, 0)
    refusal(lambda: quotas.push("a", 7, 1, 0, LOOK_MS))
    quotas.push("a", 7, 1, 0, LOOK_MS + 1)


def test_a_thousand_sends_cost_one_look_and_an_account_of_many_queues_is_looked_at_less_often() -> None:
    book = Book(a={number: Waiting(0, 0) for number in range(1, 5001)})
    quotas = Quotas(book, account_default=Quota(messages_max=1 << 40))
    for _ in range(1000):
        quotas.push("a", 1, 1, 0, 0)
    assert book.looks == 5000
    quotas.push("a", 1, 1, 0, 5000)
    assert book.looks == 5000
    quotas.push("a", 1, 1, 0, 5001)
    assert book.looks == 10_000


def test_without_adding_what_was_admitted_a_quota_is_passed_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room._Holder, "admit", lambda *_: None)
    quotas = Quotas(Book(a={7: Waiting(0, 0)}), queue_default=Quota(messages_max=10))
    for _ in range(100):
        quotas.push("a", 7, 1, 0, 0)


def test_an_account_makes_queues_up_to_its_limit() -> None:
    book = Book(a={1: Waiting(0, 0)})
    told: list[str] = []
    quotas = Quotas(book, {"a": Quota(queues_max=2)}, refused=told.append)
    quotas.create("a", 0)
    book.accounts["a"][2] = Waiting(0, 0)
    error = refusal(lambda: quotas.create("a", 0))
    assert error.quota == "queues_max" and str(error) == "The account a has 2 queues and may have no more."
    assert told == ["queues_max"]
    quotas.create("b", 0)


def test_where_no_quota_is_set_nothing_is_looked_up() -> None:
    book = Book(a={7: Waiting(1 << 40, 1 << 60)})
    quotas = Quotas(book, {"a": Quota(), "b": Quota(requests_per_s=1)})
    for _ in range(3):
        quotas.request("a", 7, 0)
        quotas.push("a", 7, 10_000, 1 << 30, 0)
        quotas.create("a", 0)
    assert book.looks == 0


def test_with_no_quota_for_anybody_it_keeps_nothing_and_asks_nobody() -> None:
    quotas = Quotas(Book(), {"a": Quota(), "b": Quota()})
    assert not quotas.active
    quotas.request("a", 7, 0)
    quotas.push("a", 7, 1, 1, 0)
    quotas.create("a", 0)
    assert not quotas._accounts and not quotas._queues
    for one in (Quotas(Book(), {"a": Quota(queues_max=0)}), Quotas(Book(), queue_default=Quota(bytes_max=0))):
        assert one.active


def test_a_quota_of_0_allows_nothing() -> None:
    quotas = Quotas(Book(), account_default=Quota(0, 0, 0, 0))
    error = refusal(lambda: quotas.request("a", 0, 10**9))
    assert isinstance(error, Throttled) and error.retry_after_ms == 1000
    assert refusal(lambda: quotas.push("a", 7, 1, 0, 0)).quota == "messages_max"
    assert refusal(lambda: quotas.create("a", 0)).quota == "queues_max"


def test_what_an_account_has_no_value_for_is_taken_from_the_default() -> None:
    quotas = Quotas(Book(), {"a": Quota(requests_per_s=2)}, account_default=Quota(requests_per_s=1, queues_max=0))
    quotas.request("a", 0, 0)
    quotas.request("a", 0, 0)
    assert refusal(lambda: quotas.create("a", 0)).quota == "queues_max"
    quotas.request("b", 0, 0)
    refusal(lambda: quotas.request("b", 0, 0))


def test_a_quota_that_was_changed_holds_from_then_on() -> None:
    quotas = Quotas(Book(), {"a": Quota(requests_per_s=1)})
    quotas.request("a", 0, 0)
    refusal(lambda: quotas.request("a", 0, 0))
    quotas.set_accounts({"a": Quota(requests_per_s=2)})
    quotas.request("a", 0, 0)
    quotas.request("a", 0, 0)
    refusal(lambda: quotas.request("a", 0, 0))


def test_no_number_of_accounts_and_queues_fills_the_memory() -> None:
    quotas = Quotas(Book(), account_default=Quota(requests_per_s=1))
    for number in range(KEPT_MAX + 10):
        quotas.request(str(number), number, 0)
    assert len(quotas._accounts) <= KEPT_MAX and len(quotas._queues) <= KEPT_MAX
    refusal(lambda: quotas.request(str(KEPT_MAX + 9), 0, 0))


def test_a_quota_that_is_reached_is_the_callers_fault_and_nothing_happened() -> None:
    assert issubclass(OverQuota, Refused) and OverQuota().fault == "caller"


async def test_the_ledger_of_a_node_counts_whatever_waits_and_estimates_its_bytes() -> None:
    async with dovetail.open("memory:") as node:
        one = await node.queue("one", namespace="111111111111/eu-west-1")
        two = await node.queue("two", namespace="111111111111/us-east-1")
        other = await node.queue("one", namespace="222222222222/us-east-1")
        await one.send_many([b"x" * 100, b"x" * 300])
        await one.send(b"x" * 200, delay_s=60)
        await one.receive()
        await other.send(b"y")
        ledger = StoreLedger(node.store, node.broker.meters)
        assert sorted(ledger.queues("111111111111")) == sorted([one.lane.queue, two.lane.queue])
        assert ledger.queues("333333333333") == []
        assert ledger.waiting(one.lane.queue) == Waiting(3, 600)
        assert ledger.waiting(two.lane.queue) == Waiting(0, 0)
        # After a start nothing was sent yet: a few that wait are looked at.
        assert StoreLedger(node.store, Meters(Registry())).waiting(one.lane.queue) == Waiting(3, 600)
        await node.drop("two", namespace="111111111111/us-east-1")
        assert ledger.waiting(two.lane.queue) == Waiting(0, 0)
