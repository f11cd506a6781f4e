"""CreateQueue, DeleteQueue, GetQueueUrl, ListQueues, GetQueueAttributes, SetQueueAttributes, PurgeQueue. One function for each action."""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dovetail.core.operation import Attributes
from dovetail.doors.sqs import errors, policy, shapes
from dovetail.doors.sqs import queueattributes as qa
from dovetail.doors.sqs.calls import NAMESPACES, Call
from dovetail.doors.sqs.errors import SqsError, invalid
from dovetail.doors.sqs.queueattributes import Arn
from dovetail.errors import QueueExists
from dovetail.service.broker import Lane

PAGE_MAX = 1000
TAGS_MAX = 50
TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX = 128, 256

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")


async def create_queue(call: Call, o: shapes.CreateQueue) -> shapes.CreateQueueResult:
    """Idempotent for the same attributes; a queue that has others under this name is in the way."""
    name, given = o.queue_name, o.attributes or {}
    if not _NAME.fullmatch(name):
        raise invalid("QueueName", name, "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.")
    fifo = name.endswith(".fifo")
    values = qa.checked(given, fifo=fifo or given.get("FifoQueue") == "true", creating=True, beyond=call.door.beyond)
    if fifo != ("FifoQueue" in values):
        raise SqsError(
            errors.PARAMETER_VALUE,
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix "
            "and be 1 to 80 in length."
            if not fifo
            else "A name that ends with .fifo belongs to a FIFO queue: the attribute FifoQueue must be true.",
        )
    tags = check_tags(o.tags or {})
    arn = Arn(call.caller.region, call.caller.account, name)
    target = await _checked_policies(call, values, arn, fifo, None)
    _check_combination(values)
    catalog, door = call.door.broker.catalog, call.door
    lane = catalog.find(call.namespace, name)
    if lane is None:
        door.cooldowns.check_created(call.namespace, name)
        door.check_create(call)
        try:
            lane = await catalog.create(call.namespace, name, qa.made(values, tags, target, door.now_s()))
            await door.orphans.reattach(arn, lane)
        except QueueExists:
            lane = catalog.get(call.namespace, name)  # Somebody made it in the same moment.
    _check_same(lane.attributes, values)
    return shapes.CreateQueueResult(call.url_of(lane))


def _check_same(attributes: Attributes, values: Mapping[str, str]) -> None:
    have = qa.shown(attributes)
    for name, value in values.items():
        if have.get(name, "") != value:
            raise SqsError(
                errors.QUEUE_NAME_EXISTS, f"A queue already exists with the same name and a different value for attribute {name}"
            )


def _check_combination(values: Mapping[str, str]) -> None:
    if values.get("FifoThroughputLimit") == "perMessageGroupId" and values.get("DeduplicationScope") != "messageGroup":
        raise SqsError(
            errors.ATTRIBUTE_VALUE,
            "Invalid value for the parameter FifoThroughputLimit. perMessageGroupId needs a DeduplicationScope of messageGroup.",
        )
    if values.get("SqsManagedSseEnabled") == "true" and values.get("KmsMasterKeyId"):
        raise SqsError(
            errors.ATTRIBUTE_NAME,
            "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE.",
        )


async def _checked_policies(call: Call, values: Mapping[str, str], own: Arn, fifo: bool, lane: Lane | None) -> int | None:
    """Check the attributes that are documents. Returns the id of the dead-letter queue where one is named."""
    text = values.get("Policy")
    if text:
        try:
            policy.parse(text)
        except policy.PolicyRefused as error:
            raise SqsError(errors.ATTRIBUTE_VALUE, error.text) from None
    if values.get("RedriveAllowPolicy"):
        qa.redrive_allow_policy(values["RedriveAllowPolicy"])
    if not values.get("RedrivePolicy"):
        return None
    redrive = values["RedrivePolicy"]
    target = qa.redrive_policy(redrive).target
    if (target.account, target.region) != (own.account, own.region):
        raise qa.refused("RedrivePolicy", redrive, "Dead-letter target owner should be the same as the source.")
    named = f"{target.account}{NAMESPACES}{target.region}", target.name
    found = call.door.broker.catalog.find(*named)
    if found is None and await call.door.broker.store.confirm():
        found = call.door.broker.catalog.find(*named)
    if found is None:
        raise (
            SqsError(errors.QUEUE_DOES_NOT_EXIST, "Dead letter target does not exist.")
            if lane is None
            else qa.refused("RedrivePolicy", redrive, "Dead letter target does not exist.")
        )
    if found.attributes.grouped != fifo:
        raise qa.refused("RedrivePolicy", redrive, "Dead-letter queue must be same type of queue as the source.")
    if target == own:
        raise qa.refused("RedrivePolicy", redrive, "Dead-letter queue must not be the queue itself.")
    allow = qa.shown(found.attributes).get("RedriveAllowPolicy")
    if allow and not qa.redrive_allow_policy(allow).allows(own):
        raise qa.refused("RedrivePolicy", redrive, "The dead-letter queue's RedriveAllowPolicy does not permit this source queue.")
    return found.queue


def check_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    if len(tags) > TAGS_MAX:
        raise SqsError(errors.PARAMETER_VALUE, f"Too many tags added for queue. At most {TAGS_MAX} are allowed.")
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_CHARS_MAX or len(value) > TAG_VALUE_CHARS_MAX:
            raise SqsError(
                errors.PARAMETER_VALUE,
                f"Tag keys must be between 1 and {TAG_KEY_CHARS_MAX} characters in length, values up to {TAG_VALUE_CHARS_MAX}.",
            )
        if key.lower().startswith("aws:"):
            raise SqsError(errors.PARAMETER_VALUE, f"The tag key {key[:40]} uses the reserved prefix aws:.")
    return tags


async def delete_queue(call: Call, o: shapes.DeleteQueue) -> None:
    lane = call.lane(o.queue_url)
    arn = call.arn_of(lane)
    namespace = f"{arn.account}{NAMESPACES}{arn.region}"
    await call.door.broker.catalog.drop(namespace, arn.name)
    call.door.cooldowns.note_deleted(namespace, arn.name)
    call.door.orphans.note_deleted(arn)


async def get_queue_url(call: Call, o: shapes.GetQueueUrl) -> shapes.GetQueueUrlResult:
    owner = o.queue_owner or call.caller.account
    if not re.fullmatch(r"[0-9]{12}", owner):
        raise invalid("QueueOwnerAWSAccountId", owner, "An account id has 12 digits.")
    return shapes.GetQueueUrlResult(call.url_of(call.lane_named(owner, o.queue_name)))


async def list_queues(call: Call, o: shapes.ListQueues) -> shapes.ListQueuesResult:
    prefix = o.queue_name_prefix or ""
    names = sorted(call.door.broker.catalog.names(call.namespace, prefix))
    page, token = paged(names, o.max_results, o.next_token)
    base = f"{call.base_url}/{call.caller.account}/"
    return shapes.ListQueuesResult([base + name for name in page] or None, token)


def paged(names: Sequence[str], most: int | None, token: str | None) -> tuple[Sequence[str], str | None]:
    """One page of sorted names, and the token of the next. A token is the last name of its page: it stays good while queues come and go."""
    if most is not None and not 1 <= most <= PAGE_MAX:
        raise invalid("MaxResults", most, f"MaxResults must be an integer between 1 and {PAGE_MAX}.")
    if token:
        if most is None:
            raise invalid("NextToken", token, "NextToken cannot be specified without MaxResults.")
        try:
            last = b64decode(token.encode(), b"-_", validate=True).decode()
        except ValueError:
            raise invalid("NextToken", token, "It was not given by this service.") from None
        names = [name for name in names if name > last]
    page = names[: most or PAGE_MAX]
    more = most is not None and len(names) > len(page)
    return page, urlsafe_b64encode(page[-1].encode()).decode() if more else None


async def get_queue_attributes(call: Call, o: shapes.GetQueueAttributes) -> shapes.GetQueueAttributesResult:
    lane = call.lane(o.queue_url)
    names = o.attribute_names or []
    for name in names:
        if name not in qa.ALL and name != "All":
            raise SqsError(errors.ATTRIBUTE_NAME, f"Unknown Attribute {name[:100]}.")
    if not names:
        return shapes.GetQueueAttributesResult()
    values = qa.shown(lane.attributes)
    values["QueueArn"] = str(call.arn_of(lane))
    if "All" in names or any(name.startswith("Approximate") for name in names):
        counts = lane.counts()
        values["ApproximateNumberOfMessages"] = str(counts.visible)
        values["ApproximateNumberOfMessagesNotVisible"] = str(counts.leased)
        values["ApproximateNumberOfMessagesDelayed"] = str(counts.delayed)
    return shapes.GetQueueAttributesResult({name: value for name, value in values.items() if "All" in names or name in names} or None)


async def set_queue_attributes(call: Call, o: shapes.SetQueueAttributes) -> None:
    lane = call.lane(o.queue_url)
    fifo = lane.attributes.grouped
    if not o.attributes:
        raise errors.missing("Attribute.Name")
    values = qa.checked(o.attributes, fifo=fifo, creating=False, beyond=call.door.beyond)
    values.pop("FifoQueue", None)  # It can only say what is so already.
    target = await _checked_policies(call, values, call.arn_of(lane), fifo, lane)

    def changed(attributes: Attributes) -> Attributes:
        named = "FifoThroughputLimit" in values or "DeduplicationScope" in values
        _check_combination(qa.shown(attributes) | values if named else values)
        return qa.applied(attributes, values, target)

    await configure(call, lane, changed)


async def configure(call: Call, lane: Lane, make: Callable[[Attributes], Attributes]) -> None:
    """Keep changed attributes, with the time of the change. `make` is given them as they are when it is their turn."""
    now = str(call.door.now_s())

    def changed(attributes: Attributes) -> Attributes:
        made = make(attributes)
        return replace(made, extra={**made.extra, qa.MODIFIED: now})

    await call.door.broker.catalog.change(lane, changed)


async def purge_queue(call: Call, o: shapes.PurgeQueue) -> None:
    lane = call.lane(o.queue_url)
    call.door.cooldowns.check_purged(lane.queue, call.arn_of(lane).name)
    await lane.purge()
