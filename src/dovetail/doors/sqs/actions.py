"""The 23 actions (and ours): name → the shape of its request, its function, and whether it is an act that the audit log notes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from dovetail.doors.sqs import deadletters, messages, permissions, queues, shapes, tags
from dovetail.doors.sqs.calls import Call
from dovetail.doors.sqs.shapes import Result, Shape


class Action(NamedTuple):
    name: str
    shape: type[Shape]
    run: Callable[[Call, Any], Awaitable[Result]]
    noted: bool = False


_TABLE: tuple[Action, ...] = (
    Action("SendMessage", shapes.SendMessage, messages.send_message),
    Action("SendMessageBatch", shapes.SendMessageBatch, messages.send_message_batch),
    Action("ReceiveMessage", shapes.ReceiveMessage, messages.receive_message),
    Action("DeleteMessage", shapes.DeleteMessage, messages.delete_message),
    Action("DeleteMessageBatch", shapes.DeleteMessageBatch, messages.delete_message_batch),
    Action("ChangeMessageVisibility", shapes.ChangeMessageVisibility, messages.change_message_visibility),
    Action("ChangeMessageVisibilityBatch", shapes.ChangeMessageVisibilityBatch, messages.change_message_visibility_batch),
    Action("CreateQueue", shapes.CreateQueue, queues.create_queue, True),
    Action("DeleteQueue", shapes.DeleteQueue, queues.delete_queue, True),
    Action("GetQueueUrl", shapes.GetQueueUrl, queues.get_queue_url),
    Action("ListQueues", shapes.ListQueues, queues.list_queues),
    Action("GetQueueAttributes", shapes.GetQueueAttributes, queues.get_queue_attributes),
    Action("SetQueueAttributes", shapes.SetQueueAttributes, queues.set_queue_attributes, True),
    Action("PurgeQueue", shapes.PurgeQueue, queues.purge_queue, True),
    Action("ListDeadLetterSourceQueues", shapes.ListDeadLetterSourceQueues, deadletters.list_dead_letter_source_queues),
    Action("StartMessageMoveTask", shapes.StartMessageMoveTask, deadletters.start_message_move_task, True),
    Action("ListMessageMoveTasks", shapes.ListMessageMoveTasks, deadletters.list_message_move_tasks),
    Action("CancelMessageMoveTask", shapes.CancelMessageMoveTask, deadletters.cancel_message_move_task, True),
    Action("TagQueue", shapes.TagQueue, tags.tag_queue, True),
    Action("UntagQueue", shapes.UntagQueue, tags.untag_queue, True),
    Action("ListQueueTags", shapes.ListQueueTags, tags.list_queue_tags),
    Action("AddPermission", shapes.AddPermission, permissions.add_permission, True),
    Action("RemovePermission", shapes.RemovePermission, permissions.remove_permission, True),
    Action("PeekMessages", shapes.PeekMessages, messages.peek_messages),
)
ACTIONS: dict[str, Action] = {action.name: action for action in _TABLE}
OURS = frozenset({"PeekMessages"})
"""Not in Amazon's service."""

BRIEF = frozenset(
    f"AmazonSQS.{name}{batch}".encode() for name in ("SendMessage", "DeleteMessage", "ChangeMessageVisibility") for batch in ("", "Batch")
)
"""As targets: their answers are small whatever is asked. They name the messages that the request named, and show none."""
