"""Who calls: the exchange of nonces and proofs before the first request. No secret is on the wire, a wrong key and a wrong proof look the
same and take the same time, and a node proves itself in turn.
"""

from __future__ import annotations

import os
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from dovetail.doors.native import answers, requests
from dovetail.doors.native.codec import NONCE_BYTES, VERSION, client_proof, node_proof
from dovetail.doors.native.frames import Frame
from dovetail.doors.native.refusals import AccessDenied

if TYPE_CHECKING:
    from dovetail.doors.native.door import Door

KEY_CHARS_MAX = 128
"""Of a key that nobody checks."""


class Caller(NamedTuple):
    """Whom the node takes a connection for. On an open node everybody owns every queue."""

    account: str
    namespace: str
    """Where queues are when no namespace is named."""
    key: str
    signed: bool

    def owns(self, namespace: str) -> bool:
        return not self.signed or namespace == self.account or namespace.startswith(f"{self.account}/")


class Greeting:
    def __init__(self, door: Door) -> None:
        self._door = door
        self._nonce = os.urandom(NONCE_BYTES)

    def hello(self) -> answers.Hello:
        return answers.Hello(VERSION, answers.CHALLENGE if self._door.options.auth == "signed" else answers.OPEN, self._nonce)

    def answer(self, frame: Frame) -> tuple[Caller, answers.Welcome]:
        """AccessDenied where key or proof do not hold."""
        auth = requests.decode(frame)
        assert isinstance(auth, requests.Auth)
        options = self._door.options
        if options.auth != "signed":
            return self._welcome(Caller(options.account, options.namespace, auth.key[:KEY_CHARS_MAX], False), bytes(NONCE_BYTES))
        key = self._door.find_key(auth.key)
        # Somebody who asks for a key that is not there is answered after the same work.
        secret, token = (key.secret, key.session_token or "") if key is not None else ("", "")
        wanted = client_proof(secret, self._nonce, auth.nonce, auth.key, token)
        if not compare_digest(wanted, auth.proof) or key is None:
            raise AccessDenied
        caller = Caller(key.account, f"{key.account}/{options.region}", key.access_key_id, True)
        return self._welcome(caller, node_proof(secret, self._nonce, auth.nonce))

    def _welcome(self, caller: Caller, proof: bytes) -> tuple[Caller, answers.Welcome]:
        return caller, self._door.welcome(caller, proof)
