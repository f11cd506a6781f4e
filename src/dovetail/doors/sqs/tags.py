"""TagQueue, UntagQueue, ListQueueTags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from dovetail.doors.sqs import errors, shapes
from dovetail.doors.sqs import queueattributes as qa
from dovetail.doors.sqs.calls import Call
from dovetail.doors.sqs.queues import check_tags, configure
from dovetail.service.broker import Lane


async def tag_queue(call: Call, o: shapes.TagQueue) -> None:
    lane = call.lane(o.queue_url)
    if not o.tags:
        raise errors.missing("Tags")
    await _keep(call, lane, check_tags({**qa.tags_of(lane.attributes), **check_tags(o.tags)}))


async def untag_queue(call: Call, o: shapes.UntagQueue) -> None:
    lane = call.lane(o.queue_url)
    if not o.tag_keys:
        raise errors.missing("TagKeys")
    await _keep(call, lane, {key: value for key, value in qa.tags_of(lane.attributes).items() if key not in o.tag_keys})


async def list_queue_tags(call: Call, o: shapes.ListQueueTags) -> shapes.ListQueueTagsResult:
    return shapes.ListQueueTagsResult(qa.tags_of(call.lane(o.queue_url).attributes) or None)


async def _keep(call: Call, lane: Lane, tags: Mapping[str, str]) -> None:
    extra = {**lane.attributes.extra, qa.TAGS: json.dumps(dict(tags))}
    if not tags:
        del extra[qa.TAGS]
    await configure(call, lane, replace(lane.attributes, extra=extra))
