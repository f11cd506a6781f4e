"""One call: who makes it, over which connection, and the queue that it names. What every action is given beside its request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from dovetail.core.operation import Attributes
from dovetail.doors.http.message import Request
from dovetail.doors.sqs import errors
from dovetail.doors.sqs import queueattributes as qa
from dovetail.doors.sqs.errors import SqsError
from dovetail.doors.sqs.policy import Policy, parse
from dovetail.doors.sqs.queueattributes import Arn
from dovetail.service.broker import Lane

if TYPE_CHECKING:
    from dovetail.doors.sqs.door import Door

NAMESPACES = "/"
PLACES_KEPT = 20_000
PLACE_CHARS_MAX = 512
"""Of a URL that is remembered: a host name, an account and a queue's name are shorter."""


class Caller(NamedTuple):
    """Who calls. On an open door everybody owns the account that a queue's URL names."""

    account: str
    region: str
    key: str
    signed: bool

    @property
    def arn(self) -> str:
        return f"arn:aws:iam::{self.account}:root"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a queue's attributes mean to this door, read once and kept until they change."""

    attributes: Attributes
    fifo: bool
    by_content: bool
    """A message without a deduplication id gets one from its body."""
    per_group: bool
    """A repeat is one of the same group only."""
    body_max: int
    wait_ms: int
    policy: Policy | None

    @classmethod
    def of(cls, attributes: Attributes) -> Rules:
        values = qa.shown(attributes)
        policy = values.get("Policy")
        return cls(
            attributes,
            attributes.grouped,
            values.get("ContentBasedDeduplication") == "true",
            values.get("DeduplicationScope") == "messageGroup",
            int(values["MaximumMessageSize"]),
            int(values["ReceiveMessageWaitTimeSeconds"]) * 1000,
            parse(policy) if policy else None,
        )


class Call:
    """A request on its way through an action."""

    __slots__ = ("action", "base_url", "caller", "door", "request", "request_id", "undo")

    def __init__(self, door: Door, action: str, caller: Caller, base_url: str, request_id: str, request: Request) -> None:
        self.door = door
        self.action = action
        self.caller = caller
        self.base_url = base_url
        """`http://host`, as the caller reached us: queue URLs that we give work wherever the caller is."""
        self.request_id = request_id
        self.request = request
        self.undo: Callable[[], None] | None = None
        """What to do where the answer cannot be given because the caller has left."""

    # Queues by what callers call them

    def lane(self, url: str) -> Lane:
        """The queue that a URL (or a bare name) means, if the caller may do this to it."""
        account, name = self._named(url)
        return self.lane_named(account, name)

    def lane_named(self, account: str, name: str, region: str | None = None) -> Lane:
        door, caller = self.door, self.caller
        region = region or caller.region
        lane = door.broker.catalog.find(f"{account}{NAMESPACES}{region}", name)
        if caller.signed:
            self._authorize(lane, Arn(region, account, name))
        if lane is None:
            raise SqsError(errors.QUEUE_DOES_NOT_EXIST)
        if door.limited:
            door.check_request(lane)
        return lane

    def _named(self, url: str) -> tuple[str, str]:
        if not url:
            raise errors.missing("QueueUrl")
        if "/" not in url:
            return self.caller.account, url
        known = self.door.places.get(url)
        if known is None:
            parts = url.rstrip("/").rsplit("/", 2)
            if len(parts) < 3 or len(parts[1]) != 12 or not parts[1].isascii() or not parts[1].isdigit():
                raise SqsError(errors.ADDRESS, f"The address {url[:200]} is not valid for this endpoint.")
            known = parts[1], parts[2]
            if len(url) <= PLACE_CHARS_MAX:
                if len(self.door.places) >= PLACES_KEPT:
                    self.door.places.clear()
                self.door.places[url] = known
        return known

    def _authorize(self, lane: Lane | None, arn: Arn) -> None:
        """The owner may do everything that the queue's policy does not deny; others what it allows. Whether a queue of another account
        exists is nobody else's business: a missing one is answered like one that is not allowed."""
        caller = self.caller
        own = caller.account == arn.account
        policy = self.door.rules(lane).policy if lane is not None else None
        told = "none"
        if policy is not None:
            told = policy.decide(caller.account, caller.arn, f"sqs:{self.action}", str(arn), self._facts())
        if told == "deny" or (told != "allow" and not own):
            raise denied(caller, self.action, arn, "an explicit deny" if told == "deny" else "")

    def _facts(self) -> dict[str, str]:
        """What conditions of policies ask about."""
        now_ms = self.door.now_ms()
        agent, referer = self.request.headers.get(b"user-agent"), self.request.headers.get(b"referer")
        return {
            **({"aws:UserAgent": agent.decode("latin-1")} if agent is not None else {}),
            **({"aws:Referer": referer.decode("latin-1")} if referer is not None else {}),
            "aws:SourceIp": self.request.peer.rpartition(":")[0].strip("[]"),
            "aws:SecureTransport": "true" if self.base_url.startswith("https:") else "false",
            "aws:PrincipalAccount": self.caller.account,
            "aws:PrincipalArn": self.caller.arn,
            "aws:EpochTime": str(now_ms // 1000),
            "aws:CurrentTime": datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    # What callers call queues

    def url_of(self, lane: Lane) -> str:
        arn = self.arn_of(lane)
        return f"{self.base_url}/{arn.account}/{arn.name}"

    def arn_of(self, lane: Lane) -> Arn:
        return self.door.arn(lane.queue)

    @property
    def namespace(self) -> str:
        return f"{self.caller.account}{NAMESPACES}{self.caller.region}"


def denied(caller: Caller, action: str, arn: Arn, why: str = "") -> SqsError:
    reason = f"with {why} in a resource-based policy" if why else f"because no resource-based policy allows the sqs:{action.lower()} action"
    return SqsError(
        errors.ACCESS_DENIED, f"User: {caller.arn} is not authorized to perform: sqs:{action.lower()} on resource: {arn} {reason}"
    )
