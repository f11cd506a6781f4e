"""The three calls that make up nearly all traffic, in their plain form, without a task and without a structure for the result: a single
SendMessage of nothing but a body, a ReceiveMessage that finds something and asks for no attributes, a DeleteMessage.

Nothing is decided here that the actions (messages.py) would decide otherwise: whatever is not plain, and whatever would be refused, gives
None, and the door goes the long way, which says why. (The long way takes 27 µs for a send where this takes 12.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from dovetail.core.message import id_text
from dovetail.core.operation import DEFAULT
from dovetail.doors.http.message import Later, Request, Response
from dovetail.doors.sqs import content, jsonwire, shapes
from dovetail.doors.sqs.calls import NAMESPACES, Rules
from dovetail.doors.sqs.errors import SqsError
from dovetail.doors.sqs.messages import LEASE_S_MAX, RECEIVE_MAX, WAIT_S_MAX
from dovetail.errors import DovetailError
from dovetail.service.broker import Lane

if TYPE_CHECKING:
    from dovetail.doors.sqs.door import Door

_send = msgspec.json.Decoder(shapes.SendMessage)
_receive = msgspec.json.Decoder(shapes.ReceiveMessage)
_delete = msgspec.json.Decoder(shapes.DeleteMessage)
_encode = msgspec.json.Encoder().encode

Way = Callable[["Door", Request, str], "Later | None"]


def _plain_queue(door: Door, request: Request, url: str) -> tuple[Lane, Rules] | None:
    """A standard queue about which there is nothing to ask: the caller's own, or an open door's."""
    place = door.places.get(url)
    if place is None or door.limited:
        return None
    caller = door.caller(request)
    account, name = place
    lane = door.broker.catalog.find(f"{account}{NAMESPACES}{caller.region}", name)
    if lane is None:
        return None
    rules = door.rules(lane)
    if rules.fifo or (caller.signed and (rules.policy is not None or caller.account != account)):
        return None
    return lane, rules


def send_message(door: Door, request: Request, request_id: str) -> Later | None:
    began = perf_counter()
    o = _send.decode(request.body)
    text = o.message_body
    if (
        not text.isprintable()
        or not text
        or o.message_attributes is not None
        or o.delay_seconds is not None
        or o.message_group_id is not None
        or o.message_deduplication_id is not None
        or o.message_system_attributes is not None
    ):
        return None
    found = _plain_queue(door, request, o.queue_url)
    if found is None:
        return None
    lane, rules = found
    body = text.encode()
    if len(body) > rules.body_max:
        return None
    later = Later()
    meter = door.broker.meter(lane)
    meter.seen_publisher(request.peer)
    future = asyncio.ensure_future(lane.push_bodies((body,)))

    def stored(_: object) -> None:
        try:
            (sequence,) = future.result()
        except BaseException as error:
            _fail(door, later, "SendMessage", error, request_id, began)
            return
        meter.pushed.value += 1
        meter.bytes.value += len(body)
        told = f'{{"MD5OfMessageBody":"{content.md5(body)}","MessageId":"{id_text(lane.id_of(sequence))}"}}'
        door.count("SendMessage", began)
        later.give(_answer(told.encode(), request_id))

    future.add_done_callback(stored)
    return later


def receive_message(door: Door, request: Request, request_id: str) -> Later | None:
    began = perf_counter()
    o = _receive.decode(request.body)
    most = 1 if o.max_number_of_messages is None else o.max_number_of_messages
    lease_s = o.visibility_timeout
    if (
        o.message_attribute_names
        or o.message_system_attribute_names
        or o.attribute_names
        or o.receive_request_attempt_id is not None
        or not 1 <= most <= RECEIVE_MAX
        or not 0 <= (o.wait_time_seconds or 0) <= WAIT_S_MAX
        or (lease_s is not None and not 0 <= lease_s <= LEASE_S_MAX)
    ):
        return None
    found = _plain_queue(door, request, o.queue_url)
    if found is None:
        return None
    lane = found[0]
    if door.broker.dequeue.waiting(lane.queue) or not lane.has_visible():
        return None
    popping = lane.pop(most, DEFAULT if lease_s is None else lease_s * 1000)
    later = Later(popping.abandon)
    meter = door.broker.meter(lane)
    meter.seen_consumer(request.peer)

    def taken() -> None:
        try:
            got = popping.result()
        except BaseException as error:
            _fail(door, later, "ReceiveMessage", error, request_id, began)
            return
        if not got:
            # Somebody was quicker. Whether to wait, or to say that too many are in flight, is for the long way to know.
            door.long_way(request, b"AmazonSQS.ReceiveMessage", request_id, later)
            return
        meter.count_delivered(got)
        md5 = content.md5
        told = [shapes.Message(id_text(one.id), one.receipt, md5(one.body), one.body.decode(errors="replace")) for one in got]
        door.count("ReceiveMessage", began)
        later.give(_answer(_encode(shapes.ReceiveMessageResult(told)), request_id, popping.abandon))

    popping.add_done_callback(taken)
    return later


def delete_message(door: Door, request: Request, request_id: str) -> Later | None:
    began = perf_counter()
    o = _delete.decode(request.body)
    found = _plain_queue(door, request, o.queue_url)
    if found is None:
        return None
    lane = found[0]
    later = Later()
    future = asyncio.ensure_future(lane.complete((o.receipt_handle,)))

    def completed(_: object) -> None:
        try:
            (done,) = future.result()
        except BaseException as error:
            _fail(door, later, "DeleteMessage", error, request_id, began)
            return
        if done:
            door.broker.meter(lane).completed.value += 1
        door.count("DeleteMessage", began)
        later.give(_answer(b"", request_id))

    future.add_done_callback(completed)
    return later


def _answer(body: bytes, request_id: str, undo: Callable[[], None] | None = None) -> Response:
    return Response(200, body, jsonwire.CONTENT_TYPE, ((b"x-amzn-requestid", request_id.encode()),), undo)


def _fail(door: Door, later: Later, action: str, error: BaseException, request_id: str, began: float) -> None:
    if isinstance(error, asyncio.CancelledError):
        return  # The caller has left.
    told = door.told(error, request_id)
    door.count(action, began, told.kind.code)
    later.give(jsonwire.encode_error(told, request_id))


WAYS: dict[bytes, Way] = {
    b"AmazonSQS.SendMessage": send_message,
    b"AmazonSQS.ReceiveMessage": receive_message,
    b"AmazonSQS.DeleteMessage": delete_message,
}
TURNS = (msgspec.DecodeError, UnicodeError, RecursionError, SqsError, DovetailError)
"""What makes the door go the long way, where it is refused in the proper words."""
