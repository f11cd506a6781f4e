"""Facts taps over a connection. What a node answers is Arrow; whoever wants facts one by one needs pyarrow here too."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dovetail.doors.native import answers
from dovetail.doors.native.answers import Done, Taps
from dovetail.doors.native.codec import Kind, requests
from dovetail.errors import BadRequest
from dovetail.service.handles import Happened
from dovetail.stores.store import TapFacts

if TYPE_CHECKING:
    from dovetail.client.session import Session


class RemoteFacts:
    """For the verbs, which are one of these."""

    if TYPE_CHECKING:
        _session: Session

    async def facts_open(self, namespace: str, name: str, start: int, age_ms: int, size: int) -> int:
        return (await self._session.asks.ask(requests.FactsOpen(name, start, age_ms, size, namespace), Done, again=True)).value

    async def facts_taps(self, namespace: str) -> list[TapFacts]:
        answer = await self._session.asks.ask(requests.FactsAbout(Kind.FACTS_LIST, "", namespace), Taps, again=True)
        return [TapFacts(*tap) for tap in answer.taps]

    async def facts_read(self, namespace: str, name: str, most: int, from_number: int | None) -> tuple[list[Happened], int, int]:
        answer = await self._read(namespace, name, most, from_number)
        return _happened(answer.stream), answer.next, answer.end

    async def facts_read_arrow(self, namespace: str, name: str, most: int, from_number: int | None) -> tuple[bytes, int]:
        answer = await self._read(namespace, name, most, from_number)
        return bytes(answer.stream), answer.next

    async def _read(self, namespace: str, name: str, most: int, from_number: int | None) -> answers.Arrow:
        number = requests.FACTS_POSITION if from_number is None else from_number
        return await self._session.asks.ask(requests.FactsRead(name, number, most, namespace), answers.Arrow, again=True)

    async def facts_advance(self, namespace: str, name: str, number: int) -> int:
        return (await self._session.asks.ask(requests.FactsAdvance(name, number, namespace), Done, again=True)).value

    async def facts_close(self, namespace: str, name: str) -> None:
        await self._session.asks.ask(requests.FactsAbout(Kind.FACTS_CLOSE, name, namespace), Done, again=False)


def _happened(stream: Any) -> list[Happened]:
    try:
        pa: Any = import_module("pyarrow")  # not among what Dovetail needs: only this asks for it
    except ImportError:
        raise BadRequest("Facts are read as Arrow: reading them one by one needs pyarrow (pip install pyarrow).") from None
    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        table = reader.read_all()
    for name in ("time", "due"):
        table = table.set_column(table.schema.get_field_index(name), name, table.column(name).cast(pa.int64()))
    columns = [column.to_pylist() for column in table.columns]
    return [Happened(*values) for values in zip(*columns, strict=True)]
