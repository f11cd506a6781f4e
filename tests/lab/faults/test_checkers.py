"""Each checker rejects the histories in which its promise was broken, says how, and accepts those in which it was not."""

from __future__ import annotations

import pytest

from dovetail.lab.faults.checkers import dead_letters, delay, drained, fencing, fifo, group_order, linear, settled, stored_once, total_queue
from dovetail.lab.faults.checkers.verdict import Verdict
from dovetail.lab.faults.history import Call
from tests.lab.faults.calls import NEVER, call, complete, receive, send, settle


def broken(verdict: Verdict, *words: str) -> bool:
    text = "\n".join(verdict.broken)
    assert all(word in text for word in words), text
    return not verdict.held


# Nothing acknowledged is lost


def test_a_history_in_which_everything_came_is_accepted() -> None:
    verdict = total_queue.check([send("a", 1, 2, 1), send("b", 3, 4, 2), receive(5, 6, ("a", 1), ("b", 2))])
    assert verdict.held
    assert verdict.figures["lost"] == 0 and verdict.figures["acknowledged"] == 2


@pytest.mark.parametrize(
    ("lost", "part"), [("ab", "at the beginning"), ("c", "in the middle"), ("ef", "at the end"), ("abcdef", "at the beginning")]
)
def test_what_was_acknowledged_and_never_came_is_lost_and_where_is_said(lost: str, part: str) -> None:
    sends = [send(body, at, at + 1, at) for at, body in enumerate("abcdef")]
    rest = [(body, at) for at, body in enumerate("abcdef") if body not in lost]
    verdict = total_queue.check([*sends, receive(20, 21, *rest)])
    assert broken(verdict, f"{len(lost)} acknowledged messages lost {part}")
    assert verdict.figures["lost"] == verdict.figures[f"lost {part}"] == len(lost)


def test_losses_are_told_apart_sender_by_sender() -> None:
    sends = [send("a1", 1, 2, sender=1), send("b1", 3, 4, sender=2), send("a2", 5, 6, sender=1), send("b2", 7, 8, sender=2)]
    verdict = total_queue.check([*sends, receive(20, 21, ("b1", 2), ("a2", 3))])
    assert verdict.figures["lost at the beginning"] == 1 and verdict.figures["lost at the end"] == 1


def test_an_unknown_send_may_come_and_may_not() -> None:
    sends = [send("a", 1, NEVER), send("b", 1, NEVER, process=1)]
    verdict = total_queue.check([*sends, receive(20, 21, ("a", 1))])
    assert verdict.held
    assert verdict.figures["recovered"] == 1 and verdict.figures["unknown"] == 2


def test_what_nobody_sent_or_what_was_refused_must_not_come() -> None:
    assert broken(total_queue.check([receive(20, 21, ("x", 1))]), "nobody sent")
    assert broken(total_queue.check([send("a", 1, 2, fail=True), receive(20, 21, ("a", 1))]), "nobody sent, or that were refused")


def test_a_receive_and_delete_of_unknown_outcome_may_have_taken_as_many_as_it_asked_for() -> None:
    sends = [send(f"{at}", at, at + 1, at) for at in range(11)]
    taken = receive(20, NEVER, delete=True)
    assert total_queue.check([*sends[:10], taken]).held
    assert not total_queue.check([*sends, taken]).held
    assert not total_queue.check([*sends[:10], receive(20, NEVER)]).held, "a lease that was lost ends"


def test_duplicates_are_counted_and_no_reason_to_reject() -> None:
    verdict = total_queue.check([send("a", 1, 2, 1), receive(3, 4, ("a", 1)), receive(2000, 2001, ("a", 1, 2))])
    assert verdict.held and verdict.figures["duplicated"] == 1


# A completed message never comes back


def test_a_message_that_comes_after_its_complete_was_answered_came_back() -> None:
    before = [send("a", 1, 2), receive(3, 4, ("a", 1)), complete("a", "a-1", 5, 6)]
    assert settled.check(before).held
    assert broken(settled.check([*before, receive(7, 8, ("a", 1, 2))]), "came after they were completed")
    assert settled.check([*before, receive(5, 8, ("a", 1, 2))]).held, "it may have been handed out before the complete counted"


def test_two_completes_of_one_message_cannot_both_have_counted() -> None:
    calls = [complete("a", "a-1", 5, 6), complete("a", "a-2", 7, 8)]
    assert broken(settled.check(calls), "completed twice")
    assert settled.check([calls[0], complete("a", "a-2", 7, 8, done=False)]).held
    assert settled.check([calls[0], complete("a", "a-2", 7, NEVER)]).held


# One receiver at a time


def test_a_message_that_is_handed_out_again_before_its_lease_can_have_ended_is_two_receivers() -> None:
    first = receive(10, 20, ("a", 1))
    assert broken(fencing.check([first, receive(500, 600, ("a", 1, 2))]), "two receivers' at once")
    assert broken(fencing.check([first, receive(20, 950, ("a", 1, 2))]), "two receivers' at once")
    assert fencing.check([first, receive(20, 1010, ("a", 1, 2))]).held, "the lease began at 10 at the earliest"


def test_a_lease_that_was_given_back_or_may_have_been_has_ended() -> None:
    pair = [receive(10, 20, ("a", 1)), receive(500, 600, ("a", 1, 2))]
    assert fencing.check([*pair, settle("requeue", "a", "a-1", 30, 40)]).held
    assert fencing.check([*pair, settle("requeue", "a", "a-1", 30, NEVER)]).held
    assert not fencing.check([*pair, settle("requeue", "a", "a-1", 30, 40, done=False)]).held
    assert not fencing.check([*pair, settle("requeue", "a", "a-1", 700, 800)]).held, "that came too late to explain it"


def test_a_lease_that_was_extended_holds_longer() -> None:
    pair = [receive(10, 20, ("a", 1)), receive(1000, 1200, ("a", 1, 2))]
    assert fencing.check(pair).held
    assert not fencing.check([*pair, settle("extend", "a", "a-1", 900, 910, lease_ms=1000)]).held


def test_a_store_that_undoes_what_dead_nodes_were_handed_holds_a_delivery_at_least_that_long() -> None:
    pair = [receive(10, 20, ("a", 1), lease_ms=60_000), receive(4000, 4100, ("a", 1, 2), lease_ms=60_000)]
    assert not fencing.check(pair).held
    assert fencing.check(pair, held_ms=3000).held
    assert not fencing.check([pair[0], receive(2000, 2100, ("a", 1, 2))], held_ms=3000).held


def test_an_old_receipt_that_is_honoured_is_stale() -> None:
    pair = [receive(10, 20, ("a", 1)), receive(1010, 1100, ("a", 1, 2))]
    assert broken(fencing.check([*pair, complete("a", "a-1", 1200, 1300)]), "old receipts were honoured")
    assert fencing.check([*pair, complete("a", "a-1", 1200, 1300, done=False)]).held
    assert fencing.check([*pair, complete("a", "a-1", 1050, 1300)]).held, "it may have counted before the message was handed out again"


def test_a_receipt_that_ended_two_deliveries_ago_is_stale_too() -> None:
    line = [receive(10, 20, ("a", 1)), receive(1010, 1100, ("a", 1, 2)), receive(2110, 2200, ("a", 1, 3))]
    assert not fencing.check([*line, complete("a", "a-1", 1200, 1300)]).held
    assert not fencing.check([*line, complete("a", "a-2", 2300, 2400)]).held
    assert fencing.check([*line, complete("a", "a-3", 2300, 2400)]).held


def test_a_receipt_that_was_given_back_is_stale() -> None:
    calls = [receive(10, 20, ("a", 1)), settle("release", "a", "a-1", 30, 40), complete("a", "a-1", 50, 60)]
    assert not fencing.check(calls).held


def test_two_receipts_of_one_message_cannot_both_complete_it() -> None:
    pair = [receive(10, 1100, ("a", 1)), receive(1020, 1090, ("a", 1, 2))]
    assert broken(fencing.check([*pair, complete("a", "a-1", 1101, 1200), complete("a", "a-2", 1095, 1200)]), "under two receipts")


# Groups


def grouped(*calls: Call) -> Verdict:
    sends = [send(body, at, at + 1, at, group="g") for at, body in enumerate("abc", 1)]
    return group_order.check([*sends, *calls])


def test_a_member_that_comes_before_an_earlier_one_was_completed_is_out_of_order() -> None:
    a = receive(10, 11, ("a", 1))
    assert broken(grouped(a, receive(12, 13, ("b", 2))), "out of order")
    assert broken(grouped(a, receive(12, 13, ("b", 2)), complete("a", "a-1", 14, 15)), "out of order")
    assert grouped(a, complete("a", "a-1", 12, 13), receive(14, 15, ("b", 2))).held
    assert grouped(a, complete("a", "a-1", 12, NEVER), receive(14, 15, ("b", 2))).held
    assert grouped(a, complete("a", "a-1", 12, 17), receive(13, 18, ("b", 2))).held, "they overlap"


def test_members_that_are_taken_together_are_in_order_and_without_gaps() -> None:
    assert grouped(receive(10, 11, ("a", 1), ("b", 2), ("c", 3))).held
    assert not grouped(receive(10, 11, ("b", 2), ("a", 1))).held
    assert not grouped(receive(10, 11, ("a", 1), ("c", 3)), receive(20, 21, ("b", 2))).held


def test_a_member_that_became_a_dead_letter_has_left_and_other_groups_go_their_own_way() -> None:
    dead = receive(20, 21, ("a", 7), queue="letters")
    assert grouped(receive(10, 11, ("a", 1)), receive(15, 16, ("b", 2)), dead).held
    other = send("x", 1, 2, 9, group="h")
    assert grouped(other, receive(10, 11, ("a", 1)), receive(12, 13, ("x", 9))).held


# Delays


def test_a_delayed_message_that_is_early_or_late_is_found() -> None:
    sent = send("a", 100, 110, 1, delay_ms=1000)
    assert delay.check([sent, receive(1000, 1160, ("a", 1))]).held
    assert broken(delay.check([sent, receive(500, 600, ("a", 1))]), "early")
    assert broken(delay.check([sent, receive(500, 9000, ("a", 1))]), "late")
    assert delay.check([sent, receive(500, 9000, ("a", 1))], calm=8_000_000_000).held, "nothing is late while something is broken"
    assert delay.check([send("a", 100, NEVER, delay_ms=1000), receive(500, 9000, ("a", 1))]).held, "who knows when it was stored"


# Dead letters

LETTERS = {"q": ("letters", 2)}


def test_each_message_ends_in_one_of_two_places() -> None:
    sent = send("a", 1, 2, 1)
    received = receive(3, 4, ("a", 1))
    dead = receive(2000, 2001, ("a", 1), queue="letters")
    assert dead_letters.check([sent, received, complete("a", "a-1", 5, 6)], LETTERS).held
    assert dead_letters.check([sent, received, dead], LETTERS).held
    assert broken(dead_letters.check([sent, received], LETTERS), "ended nowhere")
    assert dead_letters.check([sent, received, complete("a", "a-1", 5, NEVER)], LETTERS).held
    assert broken(dead_letters.check([sent, received, complete("a", "a-1", 5, 6), dead], LETTERS), "completed and became dead letters")
    assert dead_letters.check([sent, received, complete("a", "a-1", 5, NEVER), dead], LETTERS).held
    again = receive(3000, 3001, ("a", 2), queue="letters")
    assert broken(dead_letters.check([sent, received, dead, again], LETTERS), "two dead letters")
    assert broken(dead_letters.check([sent, receive(3, 4, ("a", 1, 3)), dead], LETTERS), "too often")


# Once


def test_a_body_at_two_places_was_stored_twice_and_a_place_holds_one() -> None:
    sent = send("a", 1, 2, 1)
    assert stored_once.check([sent, receive(3, 4, ("a", 1)), receive(2000, 2001, ("a", 1, 2))]).held
    assert broken(stored_once.check([sent, receive(3, 4, ("a", 1), ("a", 2))]), "stored twice")
    assert broken(stored_once.check([sent, receive(3, 4, ("a", 2))]), "stored twice")
    assert broken(stored_once.check([sent, send("b", 1, 2, 1)]), "two messages")


# Drained


def test_a_queue_that_is_not_empty_at_the_end_is_found() -> None:
    sent, full, none = send("a", 1, 2), {"visible": 0, "delayed": 0, "leased": 1}, {"visible": 0, "delayed": 0, "leased": 0}
    assert broken(drained.check([sent]), "never counted")
    assert broken(drained.check([sent, call("counts", 3, 4, told=full, queue="q")]), "still holds")
    assert drained.check([sent, call("counts", 3, 4, told=full, queue="q"), call("counts", 5, 6, told=none, queue="q")]).held


# First in, first out


def take(began: int, ended: int, *messages: tuple[str, int]) -> Call:
    return receive(began, ended, *messages, delete=True)


def test_the_four_bad_patterns_of_a_queue_are_found() -> None:
    a, b = send("a", 1, 2, 1), send("b", 3, 4, 2)
    assert fifo.check([a, b, take(5, 6, ("a", 1)), take(7, 8, ("b", 2)), take(9, 10)]).held
    assert broken(fifo.check([b, take(1, 2, ("b", 2))]), "from nowhere")
    assert broken(fifo.check([a, take(5, 6, ("a", 1)), take(7, 8, ("a", 1))]), "twice")
    assert broken(fifo.check([a, b, take(5, 6, ("b", 2)), take(7, 8, ("a", 1))]), "passed an earlier one")
    assert broken(fifo.check([a, b, take(5, 6, ("b", 2))]), "passed an earlier one")
    assert fifo.check([a, b, take(5, NEVER), take(5, 6, ("b", 2))]).held, "somebody may have taken a"
    assert broken(fifo.check([a, take(5, 6), take(7, 8, ("a", 1))]), "never empty")
    assert broken(fifo.check([a, b, take(3, 20, ("a", 1)), take(6, 8), take(9, 10, ("b", 2))]), "never empty")
    assert fifo.check([send("a", 1, 6, 1), take(5, 7), take(7, 8, ("a", 1))]).held


# Registers


def test_a_register_that_forgets_is_found() -> None:
    def write(value: int, began: int, ended: int) -> Call:
        return call("write", began, ended, register="r", value=value)

    def read(value: int | None, began: int, ended: int) -> Call:
        return call("read", began, ended, told={"value": value}, register="r")

    assert linear.check([write(1, 1, 2), read(1, 3, 4), write(2, 5, NEVER), read(1, 6, 7), read(2, 8, 9)]).held
    assert not linear.check([write(1, 1, 2), write(2, 3, 4), read(1, 5, 6)]).held
    assert not linear.check([write(1, 1, 2), write(2, 3, NEVER), read(2, 5, 6), read(1, 7, 8)]).held
    assert linear.check([write(1, 1, 9), read(None, 2, 3), read(1, 4, 5)]).held
    assert not linear.check([write(1, 1, 9), read(1, 2, 3), read(None, 4, 5)]).held
