"""Histories by hand, in milliseconds."""

from __future__ import annotations

from typing import Any

from dovetail.lab.faults.history import FOREVER, MS, Call

NEVER = FOREVER // MS


def call(
    verb: str, began: int, ended: int, process: int = 0, *, told: dict[str, Any] | None = None, fail: bool = False, **asked: Any
) -> Call:
    """Ended at NEVER: nobody knows what became of it."""
    unknown = ended == NEVER
    outcome = "info" if unknown else "fail" if fail else "ok"
    return Call(process, verb, asked, told or {}, began * MS, FOREVER if unknown else ended * MS, outcome)


def send(body: str, began: int, ended: int, sequence: int = 0, queue: str = "q", **more: Any) -> Call:
    process, fail = more.pop("process", 0), more.pop("fail", False)
    return call("send", began, ended, process, told={"sequence": sequence}, fail=fail, queue=queue, body=body, **more)


def receive(
    began: int, ended: int, *messages: tuple[Any, ...], queue: str = "q", lease_ms: int = 1000, process: int = 1, **more: Any
) -> Call:
    """Each message is (body, sequence, receives, receipt); unless said it is received for the first time, and the receipt is `a-1`."""
    told = []
    for one in messages:
        body, sequence = one[:2]
        receives = one[2] if len(one) > 2 else 1
        receipt = one[3] if len(one) > 3 else f"{body}-{receives}"
        told.append({"body": body, "sequence": sequence, "receives": receives, "receipt": receipt})
    return call("receive", began, ended, process, told={"messages": told}, queue=queue, most=10, lease_ms=lease_ms, **more)


def settle(verb: str, body: str, receipt: str, began: int, ended: int, done: bool = True, queue: str = "q", **more: Any) -> Call:
    process = more.pop("process", 1)
    return call(verb, began, ended, process, told={"done": done}, queue=queue, body=body, receipt=receipt, **more)


def complete(body: str, receipt: str, began: int, ended: int, done: bool = True, queue: str = "q") -> Call:
    return settle("complete", body, receipt, began, ended, done, queue)
