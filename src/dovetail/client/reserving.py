"""Batches that are set aside at a node. All of it may be asked again, on whatever connection, except what takes a reservation from its
owner: asked twice, that could take it from the next one.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from dovetail.client.handout import Handout, Row
from dovetail.client.place import Place
from dovetail.doors.native import answers
from dovetail.doors.native.answers import Done
from dovetail.doors.native.codec import Kind, requests
from dovetail.stores.batches import check_number
from dovetail.stores.store import ReservationFacts

if TYPE_CHECKING:
    from dovetail.client.session import Session


class RemoteReservations:
    """For the verbs, which are one of these."""

    if TYPE_CHECKING:
        _session: Session

    async def reserve_open(self, place: Place, name: str) -> tuple[int, int]:
        answer = await self._session.asks.ask(requests.Reservation(Kind.RESERVE_OPEN, place.queue, name), answers.Reserving, again=True)
        return answer.epoch, answer.last

    async def reserve(self, place: Place, name: str, epoch: int, batch: int, most: int) -> tuple[int, bool]:
        check_number(batch)
        answer = await self._session.asks.ask(requests.Reserve(place.queue, name, epoch, batch, most), answers.Reserved, again=True)
        return answer.messages, answer.again

    async def reserved(self, place: Place, name: str, batch: int, start: int, most: int) -> list[Row]:
        found: list[Row] = []
        while len(found) < most:
            request = requests.ReserveRead(place.queue, name, batch, start + len(found), most - len(found))
            handout = Handout(await self._session.asks.ask(request, answers.Deliveries, again=True), self._session.salt)
            if not len(handout):
                break
            named = self._session.loop.create_future()
            self._session.when_named(handout, partial(_tell, named))
            await named
            found += handout.rows(0, len(handout))
        return found

    async def reserved_arrow(self, place: Place, name: str, batch: int, start: int, most: int) -> tuple[bytes, int]:
        answer = await self._session.asks.ask(
            requests.ReserveRead(place.queue, name, batch, start, most, arrow=True), answers.Arrow, again=True
        )
        return bytes(answer.stream), answer.next

    async def reserve_settle(self, place: Place, name: str, epoch: int, batch: int) -> int:
        check_number(batch)
        return (await self._session.asks.ask(requests.ReserveSettle(place.queue, name, epoch, batch), Done, again=True)).value

    async def reserve_release(self, place: Place, name: str) -> int:
        return (await self._session.asks.ask(requests.Reservation(Kind.RESERVE_RELEASE, place.queue, name), Done, again=False)).value

    async def reserve_close(self, place: Place, name: str) -> int:
        return (await self._session.asks.ask(requests.Reservation(Kind.RESERVE_CLOSE, place.queue, name), Done, again=False)).value

    async def reservations(self, place: Place) -> list[ReservationFacts]:
        answer = await self._session.asks.ask(requests.About(Kind.RESERVE_LIST, place.queue), answers.Reservations, again=True)
        return [ReservationFacts(*one) for one in answer.reservations]


def _tell(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
