"""TagQueue, UntagQueue, ListQueueTags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from dovetail.core.operation import Attributes
from dovetail.doors.sqs import errors, shapes
from dovetail.doors.sqs import queueattributes as qa
from dovetail.doors.sqs.calls import Call
from dovetail.doors.sqs.queues import check_tags, configure


async def tag_queue(call: Call, o: shapes.TagQueue) -> None:
    lane = call.lane(o.queue_url)
    if not o.tags:
        raise errors.missing("Tags")
    given = check_tags(o.tags)
    await configure(call, lane, lambda attributes: _with(attributes, check_tags({**qa.tags_of(attributes), **given})))


async def untag_queue(call: Call, o: shapes.UntagQueue) -> None:
    lane, gone = call.lane(o.queue_url), frozenset(o.tag_keys)
    if not gone:
        raise errors.missing("TagKeys")

    def changed(attributes: Attributes) -> Attributes:
        return _with(attributes, {key: value for key, value in qa.tags_of(attributes).items() if key not in gone})

    await configure(call, lane, changed)


async def list_queue_tags(call: Call, o: shapes.ListQueueTags) -> shapes.ListQueueTagsResult:
    return shapes.ListQueueTagsResult(qa.tags_of(call.lane(o.queue_url).attributes) or None)


def _with(attributes: Attributes, tags: Mapping[str, str]) -> Attributes:
    extra = {**attributes.extra, qa.TAGS: json.dumps(dict(tags))}
    if not tags:
        del extra[qa.TAGS]
    return replace(attributes, extra=extra)
