"""The client: a node at the other end of a connection, under the same names as one in the same process.

    async with dovetail.connect("dovetail://127.0.0.1:9325") as node:
        orders = await node.queue("orders")
        await orders.send(b"hello")

    address      where nodes are and who calls
    link         one connection: greeting, frames, answers
    session      a lineage of them: what holds when one is lost
    place        a queue, as this client knows it
    pushes, batch         what is sent: batching, numbers, what became of it
    settles      what is settled
    pulls        what is received once · stream: what is consumed · handout: deliveries, in columns
    staging      what is put by under a stage
    asks         everything else
    remote       the verbs of the handles (service/verbs.py) over all of these

It carries no server along: of the node it knows the protocol's codec, and of the service what people hold in their hands.
"""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any

from dovetail.client.address import PORT, Credentials, Tls, context_of, targets_of
from dovetail.client.remote import Remote
from dovetail.client.session import Session
from dovetail.doors.native.codec import AccessDenied, ProtocolError
from dovetail.service.handles import Queues

__all__ = ["AccessDenied", "Client", "ProtocolError", "Tls", "connect"]

URL = f"dovetail://127.0.0.1:{PORT}"
TIMEOUT_S = 30.0


class Client(Queues):
    """A connection to a node, made by `connect`. Many tasks share it; it connects again by itself."""

    def __init__(self, session: Session) -> None:
        super().__init__(Remote(session))
        self._session = session

    @property
    def ready(self) -> bool:
        """It is connected now. What is asked while it is not waits for a connection, for at most `timeout_s`."""
        return self._session.link is not None

    async def ping(self) -> None:
        """Is the node there? Raises Unavailable if it does not say so in time."""
        await self._session.ping()

    async def close(self) -> None:
        """Whoever still waits for an answer is told that none will come."""
        await self._session.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class Connecting:
    """What `connect` gives: for `async with`, or for `await` by those who close by themselves."""

    def __init__(self, url: str, credentials: Credentials, tls: Tls, numbered: bool, timeout_s: float) -> None:
        self._targets, said = targets_of(url)
        self._context = context_of(tls, said)
        self._credentials = credentials
        self._numbered = numbered
        self._timeout_s = timeout_s
        self._client: Client | None = None

    async def _connected(self) -> Client:
        session = Session(self._targets, self._credentials, self._context, numbered=self._numbered, timeout_s=self._timeout_s)
        try:
            await session.open()
        except BaseException:
            await session.close()
            raise
        return Client(session)

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connected().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connected()
        return self._client

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._client is not None:
            await self._client.close()


def connect(
    url: str = URL,
    *,
    key: str = "",
    secret: str = "",
    session_token: str = "",
    tls: Tls = None,
    numbered: bool = True,
    timeout_s: float = TIMEOUT_S,
) -> Connecting:
    """Connect to a node, or to the first of several that answers.

    `key`, `secret`: an access key, where the node asks for one; the secret is not sent. `tls`: True for the machine's certificate
    authorities, a path for one's own, or an SSLContext; `dovetails://` says the same as True. `timeout_s`: how long a call may take,
    reconnects included, before it ends with Unavailable (it never left) or Unknown (it may have happened). `numbered`: sends that were
    cut off are sent again without being stored twice; False spares the node the numbers, and such sends end with Unknown.
    """
    return Connecting(url, Credentials(key, secret, session_token), tls, numbered, timeout_s)
