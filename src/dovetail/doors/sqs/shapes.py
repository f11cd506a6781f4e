"""Every request and every result of the SQS API, declared once. Both protocols, the checks and the completeness test read this table.

A field's name is that of the service's model (`queue_url` is QueueUrl). A field without a default must be given. `Q("AttributeName")` names
a list or map in the query protocol, where the members of a list are numbered: AttributeName.1, Attribute.1.Name, Attribute.1.Value.
Kinds of values are checked here; what a value may be is checked where it is used (content.py, queueattributes.py, the actions).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field


def Q(name: str, key: str = "Name", value: str = "Value") -> Meta:  # it stands where types stand
    """How a list or a map is called in the query protocol."""
    return Meta(extra={"query": name, "key": key, "value": value})


class Shape(Struct, rename="pascal", omit_defaults=True):
    """A structure of the model."""


class Value(Shape):
    """A message attribute. The list values are in the model and were never implemented by AWS; they are refused."""

    data_type: str
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: Annotated[list[str] | None, Q("StringListValue")] = None
    binary_list_values: Annotated[list[bytes] | None, Q("BinaryListValue")] = None


Names = Annotated[list[str] | None, Q("AttributeName")]
QueueAttributes = Annotated[dict[str, str], Q("Attribute")]
Tags = Annotated[dict[str, str], Q("Tag", "Key")]
MessageAttributes = Annotated[dict[str, Value] | None, Q("MessageAttribute")]
SystemAttributes = Annotated[dict[str, Value] | None, Q("MessageSystemAttribute")]


# Messages


class SendMessage(Shape):
    queue_url: str
    message_body: str
    delay_seconds: int | None = None
    message_attributes: MessageAttributes = None
    message_system_attributes: SystemAttributes = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageResult(Shape):
    md5_of_message_body: str = field(name="MD5OfMessageBody")
    message_id: str
    md5_of_message_attributes: str | None = field(name="MD5OfMessageAttributes", default=None)
    md5_of_message_system_attributes: str | None = field(name="MD5OfMessageSystemAttributes", default=None)
    sequence_number: str | None = None


class SendEntry(Shape):
    id: str
    message_body: str
    delay_seconds: int | None = None
    message_attributes: MessageAttributes = None
    message_system_attributes: SystemAttributes = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageBatch(Shape):
    queue_url: str
    entries: Annotated[list[SendEntry] | None, Q("SendMessageBatchRequestEntry")] = None


class SendEntryResult(Shape):
    id: str
    message_id: str
    md5_of_message_body: str = field(name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = field(name="MD5OfMessageAttributes", default=None)
    md5_of_message_system_attributes: str | None = field(name="MD5OfMessageSystemAttributes", default=None)
    sequence_number: str | None = None


class EntryError(Shape):
    id: str
    sender_fault: bool
    code: str
    message: str


Failed = Annotated[list[EntryError], Q("BatchResultErrorEntry")]


class SendMessageBatchResult(Shape, omit_defaults=False):
    successful: Annotated[list[SendEntryResult], Q("SendMessageBatchResultEntry")]
    failed: Failed


class ReceiveMessage(Shape):
    queue_url: str
    attribute_names: Names = None
    message_system_attribute_names: Annotated[list[str] | None, Q("MessageSystemAttributeName")] = None
    message_attribute_names: Annotated[list[str] | None, Q("MessageAttributeName")] = None
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class Message(Shape):
    message_id: str
    receipt_handle: str
    md5_of_body: str = field(name="MD5OfBody")
    body: str
    attributes: Annotated[dict[str, str] | None, Q("Attribute")] = None
    md5_of_message_attributes: str | None = field(name="MD5OfMessageAttributes", default=None)
    message_attributes: MessageAttributes = None


class ReceiveMessageResult(Shape):
    messages: Annotated[list[Message] | None, Q("Message")] = None


class DeleteMessage(Shape):
    queue_url: str
    receipt_handle: str


class DeleteEntry(Shape):
    id: str
    receipt_handle: str


class DeleteMessageBatch(Shape):
    queue_url: str
    entries: Annotated[list[DeleteEntry] | None, Q("DeleteMessageBatchRequestEntry")] = None


class EntryDone(Shape):
    id: str


class DeleteMessageBatchResult(Shape, omit_defaults=False):
    successful: Annotated[list[EntryDone], Q("DeleteMessageBatchResultEntry")]
    failed: Failed


class ChangeMessageVisibility(Shape):
    queue_url: str
    receipt_handle: str
    visibility_timeout: int


class ChangeEntry(Shape):
    id: str
    receipt_handle: str
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatch(Shape):
    queue_url: str
    entries: Annotated[list[ChangeEntry] | None, Q("ChangeMessageVisibilityBatchRequestEntry")] = None


class ChangeMessageVisibilityBatchResult(Shape, omit_defaults=False):
    successful: Annotated[list[EntryDone], Q("ChangeMessageVisibilityBatchResultEntry")]
    failed: Failed


# Queues


class CreateQueue(Shape):
    queue_name: str
    attributes: Annotated[dict[str, str] | None, Q("Attribute")] = None
    tags: Annotated[dict[str, str] | None, Q("Tag", "Key")] = field(name="tags", default=None)


class CreateQueueResult(Shape):
    queue_url: str


class DeleteQueue(Shape):
    queue_url: str


class GetQueueUrl(Shape):
    queue_name: str
    queue_owner: str | None = field(name="QueueOwnerAWSAccountId", default=None)


class GetQueueUrlResult(Shape):
    queue_url: str


class ListQueues(Shape):
    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class ListQueuesResult(Shape):
    queue_urls: Annotated[list[str] | None, Q("QueueUrl")] = None
    next_token: str | None = None


class GetQueueAttributes(Shape):
    queue_url: str
    attribute_names: Names = None


class GetQueueAttributesResult(Shape):
    attributes: Annotated[dict[str, str] | None, Q("Attribute")] = None


class SetQueueAttributes(Shape):
    queue_url: str
    attributes: QueueAttributes


class PurgeQueue(Shape):
    queue_url: str


# Dead letters


class ListDeadLetterSourceQueues(Shape):
    queue_url: str
    next_token: str | None = None
    max_results: int | None = None


class ListDeadLetterSourceQueuesResult(Shape):
    queue_urls: Annotated[list[str], Q("QueueUrl")] = field(name="queueUrls")
    next_token: str | None = None


class StartMessageMoveTask(Shape):
    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class StartMessageMoveTaskResult(Shape):
    task_handle: str


class ListMessageMoveTasks(Shape):
    source_arn: str
    max_results: int | None = None


class MoveTask(Shape):
    status: str
    source_arn: str
    approximate_number_of_messages_moved: int
    started_timestamp: int
    task_handle: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None


class ListMessageMoveTasksResult(Shape):
    results: Annotated[list[MoveTask] | None, Q("ListMessageMoveTasksResultEntry")] = None


class CancelMessageMoveTask(Shape):
    task_handle: str


class CancelMessageMoveTaskResult(Shape):
    approximate_number_of_messages_moved: int


# Tags and permissions


class TagQueue(Shape):
    queue_url: str
    tags: Tags


class UntagQueue(Shape):
    queue_url: str
    tag_keys: Annotated[list[str], Q("TagKey")]


class ListQueueTags(Shape):
    queue_url: str


class ListQueueTagsResult(Shape):
    tags: Annotated[dict[str, str] | None, Q("Tag", "Key")] = None


class AddPermission(Shape):
    queue_url: str
    label: str
    accounts: Annotated[list[str], Q("AWSAccountId")] = field(name="AWSAccountIds")
    actions: Annotated[list[str], Q("ActionName")]


class RemovePermission(Shape):
    queue_url: str
    label: str


# Beyond SQS


class PeekMessages(Shape):
    """Ours: look at bodies without receiving them."""

    queue_url: str
    max_number_of_messages: int | None = None
    after: int | None = None


class PeekedMessage(Shape):
    message_id: str
    sequence: int
    body: str
    state: str
    attributes: Annotated[dict[str, str] | None, Q("Attribute")] = None
    message_attributes: MessageAttributes = None


class PeekMessagesResult(Shape, omit_defaults=False):
    messages: Annotated[list[PeekedMessage], Q("Message")]


Result = Shape | None
"""None where the model has no result: an empty body in JSON, an empty element in XML."""
