"""A web page in a browser on the same machine reaches an open node too: it may send forms and load pictures from anywhere, unasked."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from dovetail.doors.http.message import Request, Response
from dovetail.doors.sqs import door
from tests.doors.sqs.callers import Caller, Desk
from tests.doors.sqs.voices import Refused, json_result, xml_result

PURGE = b"/?Action=PurgeQueue&QueueUrl=q"


async def picture(desk: Desk, site: bytes) -> Response:
    """What an <img src=\"http://127.0.0.1:9324/?Action=PurgeQueue…\"> of a page asks."""
    answer = desk.door.handle(Request("GET", PURGE, {b"host": b"127.0.0.1:9324", b"sec-fetch-site": site}, b"", True))
    return await answer if isinstance(answer, Awaitable) else answer


@pytest.mark.parametrize("site", [b"cross-site", b"same-site", b"same-origin"])
async def test_a_web_page_changes_nothing_on_an_open_node(desk: Desk, site: bytes) -> None:
    """same-origin as well: this node serves no page, so one of its own origin has only borrowed the address."""
    url = await desk.queue("q")
    await desk("SendMessage", QueueUrl=url, MessageBody="x")
    assert (await picture(desk, site)).status == 403
    assert await desk.bodies(url) == ["x"]


async def test_without_the_look_at_who_asks_a_picture_empties_a_queue(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    url = await desk.queue("q")
    await desk("SendMessage", QueueUrl=url, MessageBody="x")
    monkeypatch.setattr(door, "NO_PAGE", b"cross-site")
    assert (await picture(desk, b"cross-site")).status == 200
    assert await desk.bodies(url) == []


def test_each_protocol_says_so_in_its_own_words_and_who_types_an_address_is_answered(caller: Caller, queue: str) -> None:
    page = {"Sec-Fetch-Site": "same-origin"}
    for refuse in (
        lambda: json_result(caller.json("SendMessage", {"QueueUrl": queue, "MessageBody": "x"}, headers=page)),
        lambda: xml_result("SendMessage", caller.query("SendMessage", {"QueueUrl": queue, "MessageBody": "x"}, headers=page)),
    ):
        with pytest.raises(Refused) as caught:
            refuse()
        assert (caught.value.code, caught.value.status) == ("AccessDenied", 403)
    typed = caller.get("ListQueueTags", {"QueueUrl": queue}, headers={"Sec-Fetch-Site": "none"})
    assert xml_result("ListQueueTags", typed) == {}
