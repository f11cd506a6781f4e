"""Where nodes are and who calls: what `connect` is told, taken apart and checked. Nothing is connected here.

dovetail://HOST:PORT[,HOST:PORT…]        dovetails:// is the same over TLS
"""

from __future__ import annotations

import os
import ssl
from typing import NamedTuple

from dovetail.errors import BadRequest

PORT = 9325
_SCHEMES = {"dovetail": False, "dovetails": True}

Tls = bool | str | os.PathLike[str] | ssl.SSLContext | None
"""None: as the URL says. True: with the machine's certificate authorities. A path: with those in that file. Or a context of one's own."""


class Target(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Credentials(NamedTuple):
    """An access key. On an open node all of it may be empty."""

    key: str = ""
    secret: str = ""
    session_token: str = ""


def targets_of(url: str) -> tuple[list[Target], bool]:
    """(the addresses in a URL, whether they are spoken to over TLS)"""
    scheme, colon, rest = url.partition("://")
    if not colon or scheme not in _SCHEMES:
        raise BadRequest(f"{url!r} names no node; it begins with dovetail:// or, for TLS, dovetails://")
    found = [target_of(one) for one in rest.rstrip("/").split(",")]
    return found, _SCHEMES[scheme]


def target_of(text: str) -> Target:
    host, bracket, after = text.rpartition("]")
    if bracket:
        host, port = host.removeprefix("["), after.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if not host or any(letter in host for letter in "/@?# ") or (port and not port.isdecimal()) or not 0 < int(port or PORT) < 65536:
        raise BadRequest(f"{text!r} is no address; it is HOST or HOST:PORT")
    return Target(host, int(port or PORT))


def context_of(tls: Tls, said: bool) -> ssl.SSLContext | None:
    """How to speak TLS, or None for not at all. Certificates and names are checked, unless a context of one's own says otherwise."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is None:
        tls = said
    if tls is False:
        return None
    return ssl.create_default_context(cafile=None if tls is True else os.fspath(tls))
