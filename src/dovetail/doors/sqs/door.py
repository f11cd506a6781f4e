"""The SQS door: a request of either protocol to the action that it names, and the answer back in the same protocol.

    protocol → who calls → shape → action → result or error → protocol

It holds what actions share (rules of queues, tasks, cool-downs) and nothing of any one of them. An error, wherever it comes from, is
answered in the caller's protocol; only a fault of ours is logged.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import msgspec

from dovetail.clock import Clock
from dovetail.doors.http.message import Later, Request, Response
from dovetail.doors.sqs import errors, jsonwire, querywire, queuefile
from dovetail.doors.sqs.actions import ACTIONS, BRIEF, OURS, Action
from dovetail.doors.sqs.calls import NAMESPACES, Call, Caller, Rules
from dovetail.doors.sqs.canonical import normal_path
from dovetail.doors.sqs.cooldowns import Cooldowns
from dovetail.doors.sqs.deadletters import Tasks
from dovetail.doors.sqs.errors import SqsError
from dovetail.doors.sqs.fast import TURNS, WAYS, Known
from dovetail.doors.sqs.orphans import Orphans
from dovetail.doors.sqs.queueattributes import Arn
from dovetail.doors.sqs.shapes import Shape
from dovetail.doors.sqs.sigv4 import JSON_TYPES, SignatureRefused, Signed, Verifier, peek_scope
from dovetail.errors import DovetailError, NoSuchQueue, StorageError
from dovetail.service.accounts import Accounts, Quota
from dovetail.service.audit import Audit
from dovetail.service.broker import Broker, Lane
from dovetail.service.quotas import Quotas, StoreLedger

_logger = logging.getLogger("dovetail.sqs")

RULES_KEPT = 20_000
KEY_BYTES_MAX = 512
"""Of a header that is remembered: callers choose its value, and one that is longer than any honest one is read anew each time."""
NO_PAGE = b"none"
"""What a browser says of a request that no page has asked for. Other programs say nothing."""
NO_QUOTA = Quota()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator decides about this door."""

    auth: str = "open"
    """open · any · signed"""
    account: str = "000000000000"
    region: str = "us-east-1"
    """Where a caller names none."""
    cooldowns: bool = True
    beyond: bool = False
    scheme: str = "http"
    advertise: str = ""
    """The host in queue URLs for a caller that sent no Host header."""
    account_quota: Quota = NO_QUOTA
    queue_quota: Quota = NO_QUOTA


class Door:
    def __init__(
        self, broker: Broker, clock: Clock, options: Options, accounts: Accounts | None = None, audit: Audit | None = None
    ) -> None:
        self.broker = broker
        self.beyond = options.beyond
        self.options = options
        self.cooldowns = Cooldowns(clock.boot_ms, options.cooldowns)
        self.tasks = Tasks()
        self.orphans = Orphans(broker)
        self.count_request = broker.meters.count_request
        self._clock = clock
        self._accounts = accounts
        self._verifier = Verifier(accounts.find if accounts is not None else lambda _: None)
        self._audit = audit or Audit(clock)
        self._quotas = Quotas(
            StoreLedger(broker.store, broker.meters),
            account_default=options.account_quota,
            queue_default=options.queue_quota,
            refused=lambda name: broker.meters.quota_refusals.of(name).add(),
        )
        self.accounts_changed()
        self.places: dict[str, tuple[str, str]] = {}
        """Queue URLs that were taken apart before: account and name."""
        self._plain: dict[tuple[str, str, str], Known] = {}
        self._plain_version = 0
        self._store = broker.store
        self._rules: dict[int, Rules] = {}
        self._arns: dict[int, Arn] = {}
        start = os.urandom(10).hex()
        self._request_prefix = f"{start[:8]}-{start[8:12]}-{start[12:16]}-{start[16:]}-"
        self._requests = 0
        self._bases: dict[bytes, str] = {}
        self._callers: dict[bytes, Caller] = {}
        self._signers: dict[Signed, Caller] = {}

    # What actions ask for

    def rules(self, lane: Lane) -> Rules:
        known = self._rules.get(lane.queue)
        if known is None or known.attributes is not lane.attributes:
            if len(self._rules) >= RULES_KEPT:
                self._rules.clear()
            known = self._rules[lane.queue] = Rules.of(lane.attributes)
        return known

    def plain_queues(self) -> dict[tuple[str, str, str], Known]:
        """What the short way knows of queues, by URL, region and account; empty after any queue was made, changed or dropped, by whatever
        door or node."""
        version = self._store.rules_version
        if version != self._plain_version or len(self._plain) >= RULES_KEPT:
            self._plain_version = version
            self._plain.clear()
        return self._plain

    def arn(self, queue: int) -> Arn:
        known = self._arns.get(queue)
        if known is None:
            place = self.broker.store.name_of(queue)
            if place is None:
                raise SqsError(errors.QUEUE_DOES_NOT_EXIST)
            account, _, region = place[0].partition(NAMESPACES)
            if len(self._arns) >= RULES_KEPT:
                self._arns.clear()
            known = self._arns[queue] = Arn(region, account, place[1])
        return known

    def arn_text(self, queue: int) -> str | None:
        """For what only tells where something came from; that queue may be gone."""
        try:
            return str(self.arn(queue))
        except SqsError:
            return None

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def now_s(self) -> int:
        return self._clock.wall_ms() // 1000

    def sender(self, call: Call, lane: Lane) -> str:
        """A sender of another account is kept with its message; the owner need not be."""
        caller = call.caller
        return caller.account if caller.signed and caller.account != self.arn(lane.queue).account else ""

    def check_request(self, lane: Lane) -> None:
        """May the queue be asked once more in this second?"""
        self._quotas.request_of_queue(lane.queue, self._clock.boot_ms())

    def check_push(self, lane: Lane, count: int, size: int) -> None:
        """May the queue and its account hold this much more?"""
        if self._quotas.active:
            self._quotas.push(self.arn(lane.queue).account, lane.queue, count, size, self._clock.boot_ms())

    def check_create(self, call: Call) -> None:
        """May the account have one more queue?"""
        if self._quotas.active:
            self._quotas.create(call.caller.account, self._clock.boot_ms())

    def accounts_changed(self) -> None:
        """Keys are looked up as they are now; quotas are told."""
        self._quotas.set_accounts({one.id: one.quota for one in self._accounts or ()})

    # What the operator asks for

    async def make_queues(self, source: str | Mapping[str, Any]) -> None:
        """Make the queues of a file, or of its content; those that exist get what the file says and they do not have yet."""
        await queuefile.make(self, queuefile.read(source, self.options.account, self.options.region, self.beyond))

    async def reset(self) -> None:
        """Every queue is gone with its messages, and no name has to rest: what a test wants before the next."""
        for _, _, queue in self.broker.store.all_queues():
            await self.broker.store.drop(queue)
        self.cooldowns.clear()
        self.tasks.clear()

    # The way of a request

    @staticmethod
    def is_brief(request: Request) -> bool:
        """Whether its answer is small whatever is asked, so that it may be made before those ahead of it were taken."""
        return request.headers.get(b"x-amz-target") in BRIEF

    def handle(self, request: Request) -> Response | Awaitable[Response]:
        self._requests += 1
        request_id = f"{self._request_prefix}{self._requests:012x}"
        target = request.headers.get(b"x-amz-target")
        if target is not None:
            way = WAYS.get(target)
            if way is not None and request.method == "POST" and request.alone and not _logger.isEnabledFor(logging.DEBUG):
                try:
                    answer = way(self, request, request_id)
                except TURNS:
                    answer = None
                if answer is not None:
                    return answer
            return self._json(request, target, request_id)
        return self._query(request, request_id)

    async def _json(self, request: Request, target: bytes, request_id: str) -> Response:
        began = perf_counter()
        action: Action | None = None
        call: Call | None = None
        o: Shape | None = None
        try:
            prefix, _, name = target.decode("latin-1").partition(".")
            action = ACTIONS.get(name)
            if action is None or request.method != "POST" or prefix != ("Dovetail" if name in OURS else "AmazonSQS"):
                raise SqsError(errors.ACTION_UNKNOWN)
            call = self._call(request, action, request_id)
            o = jsonwire.decode(request.body, action.shape)
            response = jsonwire.encode(await self._run(action, call, o), request_id)
            response.undo = call.undo
            code = "ok"
        except Exception as error:
            told = self.told(error, request_id)
            response, code = jsonwire.encode_error(told, request_id), told.kind.code
        self._note(action, call, o, code, began)
        return response

    def long_way(self, request: Request, target: bytes, request_id: str, later: Later) -> None:
        """A call that began without a task and cannot end so."""
        task = asyncio.get_running_loop().create_task(self._json(request, target, request_id))
        later.go_on(task)

    async def _query(self, request: Request, request_id: str) -> Response:
        began = perf_counter()
        action: Action | None = None
        call: Call | None = None
        o: Shape | None = None
        as_json = querywire.wants_json(request.headers.get(b"accept"))
        try:
            action, fields = self._form(request)
            call = self._call(request, action, request_id)
            o = querywire.decode(fields, action.shape)
            result = await self._run(action, call, o)
            response = (querywire.encode_json if as_json else querywire.encode)(action.name, result, request_id)
            response.undo = call.undo
            code = "ok"
        except Exception as error:
            told = self.told(error, request_id)
            response = querywire.encode_json_error(told, request_id) if as_json else querywire.encode_error(told, request_id)
            code = told.kind.code
        self._note(action, call, o, code, began)
        return response

    async def _run(self, action: Action, call: Call, o: Shape) -> Any:
        """Queues are looked for before anything is changed, and one that is not there may have been made at another node a moment ago."""
        try:
            return await action.run(call, o)
        except (SqsError, NoSuchQueue) as error:
            if errors.of(error).kind is not errors.QUEUE_DOES_NOT_EXIST or not await self.broker.store.confirm():
                raise
        return await action.run(call, o)

    def _note(self, action: Action | None, call: Call | None, o: Shape | None, code: str, began: float) -> None:
        """Count what was asked, and write down what changes a queue, refused or not."""
        name, seconds = action.name if action is not None else "unknown", perf_counter() - began
        self.count_request(name, code, seconds)
        if _logger.isEnabledFor(logging.DEBUG) and call is not None:
            _logger.debug(
                "request=%s action=%s code=%s account=%s ms=%.2f", call.request_id, name, code, call.caller.account, seconds * 1e3
            )
        if action is not None and action.noted:
            caller = call.caller if call is not None else None
            asked: dict[str, Any] = msgspec.to_builtins(o) if o is not None else {}
            queue = asked.get("QueueName") or asked.get("QueueUrl") or asked.get("SourceArn") or ""
            self._audit.act(
                action.name,
                account=caller.account if caller is not None else "",
                key_id=caller.key if caller is not None else "",
                queue=queue.rpartition("/")[2].rpartition(":")[2],
                request_id=call.request_id if call is not None else "",
                outcome=code,
                parameters=asked,
            )

    def _form(self, request: Request) -> tuple[Action, dict[str, str]]:
        if request.method not in ("GET", "POST"):
            raise SqsError(errors.ACTION_UNKNOWN, "Use POST or GET.")
        fields = querywire.form(request.query)
        if request.method == "POST" and request.body:
            below = querywire.form(request.body)
            if fields.keys() & below.keys():
                # Otherwise the body of a presigned URL, which may be unsigned, could put another action in the place of the signed one.
                raise SqsError(errors.SERIALIZATION, "A field stands in the URL or in the body, not in both.")
            fields |= below
        name = fields.pop("Action", "")
        if not name:
            raise SqsError(errors.ACTION_MISSING)
        action = ACTIONS.get(name)
        if action is None:
            raise SqsError(errors.ACTION_UNKNOWN, f"The action {name[:100]} is not valid for this endpoint.")
        if fields.pop("Version", "2012-11-05") not in ("2012-11-05", "2011-10-01", "2009-02-01", "2008-01-01"):
            raise SqsError(errors.PARAMETER_VALUE, "The Version of this service is 2012-11-05.")
        if request.path != "/" and "QueueUrl" not in fields:
            # As the signature sees it, without dot segments.
            fields["QueueUrl"] = normal_path(request.path)
        return action, fields

    def _call(self, request: Request, action: Action, request_id: str) -> Call:
        host = request.headers.get(b"host", b"")
        base = self._bases.get(host)
        if base is None:
            base = f"{self.options.scheme}://{host.decode('latin-1') or self.options.advertise}"
            _remember(self._bases, host, base)
        caller = self.caller(request)
        if self._quotas.active:
            self._quotas.request(caller.account, 0, self._clock.boot_ms())
        return Call(self, action.name, caller, base, request_id, request)

    def caller(self, request: Request) -> Caller:
        options = self.options
        if options.auth == "signed":
            try:
                signed = self._verifier.verify(
                    request.method, request.path, request.query, request.headers, request.body, self._clock.wall_ms() / 1000
                )
            except SignatureRefused as error:
                raise refused(error) from None
            caller = self._signers.get(signed)
            if caller is None:
                if len(self._signers) >= RULES_KEPT:
                    self._signers.clear()
                caller = self._signers[signed] = Caller(signed.account, signed.region, signed.access_key_id, True)
            return caller
        if request.headers.get(b"sec-fetch-site", NO_PAGE) != NO_PAGE:
            # A browser that somebody has open beside an open node: any page in it could purge queues by a picture's address. We serve no
            # page ourselves, so one of our own origin has only borrowed our address (DNS rebinding). What is typed by hand says none.
            raise SqsError(errors.ACCESS_DENIED, "A web page may not call a node that does not verify signatures.")
        # Everything before the first comma names key, day and region; the rest is the signature, which nobody looks at here.
        claimed = request.headers.get(b"authorization", b"").partition(b",")[0]
        known = self._callers.get(claimed)
        if known is None or request.query:
            known = self._claimed(request)
            if not request.query:
                _remember(self._callers, claimed, known)
        return known

    def _claimed(self, request: Request) -> Caller:
        """Whom an unverified request says it is from."""
        options = self.options
        scope = peek_scope(request.query, request.headers)
        if scope is None:
            return Caller(options.account, options.region, "", False)
        # An access key of twelve digits names an account, as other stand-ins for SQS have it.
        key = scope.access_key_id
        account = key if len(key) == 12 and key.isascii() and key.isdigit() else options.account
        return Caller(account, scope.region or options.region, key, False)

    @property
    def limited(self) -> bool:
        """Whether anything must be asked about quotas."""
        return self._quotas.active

    def told(self, error: BaseException, request_id: str) -> SqsError:
        told = errors.of(error)
        if not isinstance(error, (SqsError, DovetailError)):
            _logger.error("request %s failed", request_id, exc_info=error)
        elif isinstance(error, StorageError):
            # Its caller is told nothing of where and how we store.
            _logger.error("request %s failed: %s", request_id, error)
        # Its frames hold the request, and one of them holds the error: a circle that would keep large bodies until the collector comes.
        error.__traceback__ = None
        return told


def _remember(cache: dict[bytes, T], key: bytes, value: T) -> None:
    if len(key) > KEY_BYTES_MAX:
        return
    if len(cache) >= RULES_KEPT:
        cache.clear()
    cache[key] = value


def refused(error: SignatureRefused) -> SqsError:
    """A signature that does not hold, under AWS's own codes."""
    return SqsError(errors.Kind(JSON_TYPES[error.code], error.code, error.status, error.text), error.text)
