"""AddPermission and RemovePermission: statements of the queue's policy, by label."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.core.operation import Attributes
from dovetail.doors.sqs import errors, policy, shapes
from dovetail.doors.sqs import queueattributes as qa
from dovetail.doors.sqs.calls import Call
from dovetail.doors.sqs.errors import SqsError
from dovetail.doors.sqs.queues import configure
from dovetail.service.broker import Lane


async def add_permission(call: Call, o: shapes.AddPermission) -> None:
    lane = call.lane(o.queue_url)
    arn = str(call.arn_of(lane))
    await _change(call, lane, lambda text: policy.add_permission(text, o.label, o.accounts, o.actions, arn))


async def remove_permission(call: Call, o: shapes.RemovePermission) -> None:
    await _change(call, call.lane(o.queue_url), lambda text: policy.remove_permission(text or "", o.label))


async def _change(call: Call, lane: Lane, make: Callable[[str | None], str]) -> None:
    """The policy anew, made of the one that the queue has when it is this change's turn."""

    def changed(attributes: Attributes) -> Attributes:
        try:
            text = make(qa.shown(attributes).get("Policy"))
        except policy.PolicyRefused as error:
            raise SqsError(errors.BY_CODE[error.code], error.text) from None
        return qa.applied(attributes, {"Policy": text}, None)

    await configure(call, lane, changed)
