"""Which version a broker is of. Brokers do not say; they say which versions of each request they speak, and that grows with them.

    request   | size u32 | api u16 = 18 | version u16 = 0 | number u32 | client: no text, u16 = −1 |
    answer    | size u32 | number u32 | error u16 | count u32 | api u16 · least u16 · most u16 … |

It is asked by hand, since the client library keeps what it was told to itself.
"""

from __future__ import annotations

import socket
from struct import Struct
from struct import error as struct_error

FETCH = 1
FETCH_MIN = 16
"""What 3.7 speaks. Before it, an entry that one broker alone has could be read while the others were out of step (KAFKA-15583): a node
would answer for copies that are not there."""
VERSION_MIN = "3.7"
ANSWER_BYTES_MAX = 1 << 20

_ASKED = Struct(">ihhih").pack(10, 18, 0, 1, -1)
_SIZE = Struct(">i")
_HEAD = Struct(">ihi")
_EACH = Struct(">hhh")


def spoken(host: str, port: int, timeout_s: float) -> dict[int, int]:
    """Request → the highest version of it. OSError where nobody answers, also where what answers is no broker."""
    with socket.create_connection((host, port), timeout_s) as line, line.makefile("rb") as answers:
        line.sendall(_ASKED)
        head = answers.read(_SIZE.size)
        size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
        data = answers.read(size) if 0 < size <= ANSWER_BYTES_MAX else b""
    return decoded(data)


def decoded(data: bytes) -> dict[int, int]:
    try:
        _, error, count = _HEAD.unpack_from(data)
        if error or not 0 <= count <= len(data) // _EACH.size:
            raise ConnectionError("it does not answer as a Kafka broker does")
        each = [_EACH.unpack_from(data, _HEAD.size + at * _EACH.size) for at in range(count)]
    except struct_error:
        raise ConnectionError("it does not answer as a Kafka broker does") from None
    return {api: most for api, _, most in each}


def old(versions: dict[int, int]) -> bool:
    return versions.get(FETCH, 0) < FETCH_MIN
