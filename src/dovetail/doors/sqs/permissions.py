"""AddPermission and RemovePermission: statements of the queue's policy, by label."""

from __future__ import annotations

from dovetail.doors.sqs import errors, policy, shapes
from dovetail.doors.sqs import queueattributes as qa
from dovetail.doors.sqs.calls import Call
from dovetail.doors.sqs.errors import SqsError
from dovetail.doors.sqs.queues import configure


async def add_permission(call: Call, o: shapes.AddPermission) -> None:
    lane = call.lane(o.queue_url)
    text = qa.shown(lane.attributes).get("Policy")
    try:
        changed = policy.add_permission(text, o.label, o.accounts, o.actions, str(call.arn_of(lane)))
    except policy.PolicyRefused as error:
        raise SqsError(errors.BY_CODE[error.code], error.text) from None
    await configure(call, lane, qa.applied(lane.attributes, {"Policy": changed}, None))


async def remove_permission(call: Call, o: shapes.RemovePermission) -> None:
    lane = call.lane(o.queue_url)
    text = qa.shown(lane.attributes).get("Policy")
    try:
        changed = policy.remove_permission(text or "", o.label)
    except policy.PolicyRefused as error:
        raise SqsError(errors.BY_CODE[error.code], error.text) from None
    await configure(call, lane, qa.applied(lane.attributes, {"Policy": changed}, None))
