"""One blocking connection to a node over the native protocol: the greeting, requests out, answers in. It knows nothing of Spark.

Drivers and executors are plain Python processes without a loop, and what they ask is either one thing at a time or a few reads one behind
the other: `ask` is the first, `send` and `receive` are the second.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Any

from dovetail.client.address import Credentials, Target
from dovetail.doors.native import codec
from dovetail.doors.native.codec import NONCE_BYTES, AccessDenied, Frame, Kind, ProtocolError, Reader, answers, raised, requests
from dovetail.errors import CodecError, Unavailable

RECEIVE_BYTES = 1 << 20


class Line:
    def __init__(self, target: Target, credentials: Credentials, context: ssl.SSLContext | None, timeout_s: float) -> None:
        self._number = 0
        self._reader = Reader()
        self._frames: deque[Frame] = deque()
        try:
            self._socket = socket.create_connection((target.host, target.port), timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                # It takes the plain socket over, and closes it where the handshake fails.
                self._socket = context.wrap_socket(self._socket, server_hostname=target.host)
        except OSError as error:
            raise Unavailable(f"no node can be reached at {target}: {error}") from None
        try:
            self.welcome = self._greet(credentials)
        except BaseException:
            self.close()
            raise

    @property
    def origin(self) -> str:
        """Names the namespace whose queues these are: the same after a restart, another one where the data is another. Two nodes may both
        have a queue 7; their offsets must not be taken for each other's."""
        return blake2b(self.welcome.salt, digest_size=8, person=b"dovetail-spark").hexdigest()

    def ask(self, request: requests.Request) -> Any:
        """The answer to one request; an error is raised as what it is."""
        self.send(request)
        return self.receive()[1]

    def send(self, request: requests.Request) -> int:
        self._number += 1
        try:
            self._socket.sendall(requests.encode(request, self._number))
        except OSError as error:
            raise Unavailable(f"the connection to the node was lost: {error}") from None
        return self._number

    def receive(self) -> tuple[int, Any]:
        """(the number of the request, its answer)"""
        frame = self._frame()
        answer = answers.decode(frame)
        if isinstance(answer, answers.Error):
            error = raised(answer)
            if not frame.number and not isinstance(error, AccessDenied):
                # About the connection as a whole: it was silent for too long, say, while a batch took its time.
                raise Unavailable(f"the node ended the connection: {error}")
            raise error
        return frame.number, answer

    def _frame(self) -> Frame:
        while True:
            while not self._frames:
                try:
                    data = self._socket.recv(RECEIVE_BYTES)
                except OSError as error:
                    raise Unavailable(f"the node does not answer: {error}") from None
                if not data:
                    raise Unavailable("the node closed the connection")
                for event in self._reader.feed(data):
                    if not isinstance(event, Frame):
                        raise ProtocolError("what answers is not a node's native door")
                    self._frames.append(event)
            frame = self._frames.popleft()
            if frame.kind != Kind.BYE:
                # A good-bye announces the end of the connection; what was asked before it is still answered.
                return frame

    def _greet(self, credentials: Credentials) -> answers.Welcome:
        key, secret, token = credentials
        self._socket.sendall(codec.hello())
        try:
            hello = self.receive()[1]
        except CodecError:
            raise ProtocolError("what answers there is not a node's native door (is this its HTTP address?)") from None
        assert isinstance(hello, answers.Hello)
        challenged = hello.auth != answers.OPEN
        if challenged and not (key and secret):
            raise AccessDenied(
                "The node asks who calls: set the options key and secret, or DOVETAIL_ACCESS_KEY_ID and DOVETAIL_SECRET_ACCESS_KEY"
            )
        nonce = os.urandom(NONCE_BYTES)
        proof = codec.client_proof(secret, hello.nonce, nonce, key, token) if challenged else bytes(32)
        welcome: answers.Welcome = self.ask(requests.Auth(key, nonce, proof))
        if challenged and not compare_digest(welcome.proof, codec.node_proof(secret, hello.nonce, nonce)):
            raise AccessDenied("The node cannot prove that it knows the secret: it is not the one that you mean.")
        return welcome

    def close(self) -> None:
        self._socket.close()

    @property
    def addresses(self) -> Sequence[str]:
        """Where this node says that it can be reached from elsewhere."""
        return self.welcome.addresses
