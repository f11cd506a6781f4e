"""ListDeadLetterSourceQueues, StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask. The moving itself is service/redrive.py's.

Tasks are the node's: one that runs when the node stops has ended, and what it had moved stays moved.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from uuid import uuid4

from dovetail.doors.sqs import errors, shapes
from dovetail.doors.sqs import queueattributes as qa
from dovetail.doors.sqs.calls import NAMESPACES, Call
from dovetail.doors.sqs.errors import SqsError, invalid
from dovetail.doors.sqs.queueattributes import Arn
from dovetail.doors.sqs.queues import paged
from dovetail.service.broker import Lane
from dovetail.service.redrive import Redrive

RATE_MAX = 500
TASKS_KEPT = 10
SOURCES_KEPT = 10_000

_STATUS = {
    "running": "RUNNING",
    "cancelling": "CANCELLING",
    "completed": "COMPLETED",
    "cancelled": "CANCELLED",
    "failed": "FAILED",
}


class Task:
    """One move task and what its owner is told about it."""

    def __init__(self, source: Arn, destination: Arn | None, rate: int | None, to_move: int, started_ms: int, redrive: Redrive) -> None:
        self.source = source
        self.destination = destination
        self.rate = rate
        self.to_move = to_move
        self.started_ms = started_ms
        self.redrive = redrive
        self.handle = b64encode(json.dumps({"taskId": str(uuid4()), "sourceArn": str(source)}).encode()).decode()

    def shown(self) -> shapes.MoveTask:
        running = self.redrive.status == "running"
        return shapes.MoveTask(
            _STATUS[self.redrive.status],
            str(self.source),
            self.redrive.moved,
            self.started_ms,
            self.handle if running else None,
            str(self.destination) if self.destination is not None else None,
            self.rate,
            self.to_move,
            errors.of(self.redrive.error).kind.code if self.redrive.error is not None else None,
        )


class Tasks:
    """The last tasks of each source, newest first. By the queue's id, so that a queue made again under its name begins without any."""

    def __init__(self) -> None:
        self._by_source: dict[int, list[Task]] = {}

    def add(self, queue: int, task: Task) -> None:
        kept = self._by_source.pop(queue, [])
        self._by_source[queue] = [task, *kept][:TASKS_KEPT]
        if len(self._by_source) > SOURCES_KEPT:
            # Queues come and go; what is remembered of them must not grow for ever. The source that was idle for longest goes.
            idle = (one for one, tasks in self._by_source.items() if not tasks[0].redrive.active)
            self._by_source.pop(next(idle, queue))

    def of(self, queue: int) -> list[Task]:
        return self._by_source.get(queue, [])

    def find(self, handle: str) -> Task | None:
        return next((task for kept in self._by_source.values() for task in kept if task.handle == handle), None)

    def clear(self) -> None:
        self._by_source.clear()


def _sources(call: Call, lane: Lane) -> Iterator[str]:
    """Names of the queues whose dead letters go to this one."""
    arn = call.arn_of(lane)
    catalog = call.door.broker.catalog
    namespace = f"{arn.account}{NAMESPACES}{arn.region}"
    for name in catalog.names(namespace):
        other = catalog.find(namespace, name)
        if other is not None and other.attributes.dead_letter == lane.queue:
            yield name


async def list_dead_letter_source_queues(call: Call, o: shapes.ListDeadLetterSourceQueues) -> shapes.ListDeadLetterSourceQueuesResult:
    await _at_hand(call)
    lane = call.lane(o.queue_url)
    page, token = paged(sorted(_sources(call, lane)), o.max_results, o.next_token)
    base = f"{call.base_url}/{call.arn_of(lane).account}/"
    return shapes.ListDeadLetterSourceQueuesResult([base + name for name in page], token)


async def _at_hand(call: Call) -> None:
    """Where the dead letters of a queue come from is asked of all queues, also of those that this node has not looked at yet."""
    store = call.door.broker.store
    for _, queue in store.queues(call.namespace):
        await store.reach(queue)


def _by_arn(call: Call, parameter: str, text: str) -> Lane:
    arn = qa.arn_of(text)
    if arn is None:
        raise invalid(parameter, text, "It is not the ARN of a queue.")
    try:
        return call.lane_named(arn.account, arn.name, arn.region)
    except SqsError as error:
        if error.kind is errors.QUEUE_DOES_NOT_EXIST:
            raise SqsError(
                errors.RESOURCE_NOT_FOUND, f"The resource that you specified for the {parameter} parameter doesn't exist."
            ) from None
        raise


async def start_message_move_task(call: Call, o: shapes.StartMessageMoveTask) -> shapes.StartMessageMoveTaskResult:
    await _at_hand(call)
    source = _by_arn(call, "SourceArn", o.source_arn)
    rate = o.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise invalid("MaxNumberOfMessagesPerSecond", rate, f"Must be between 1 and {RATE_MAX}.")
    if next(_sources(call, source), None) is None:
        raise SqsError(errors.PARAMETER_VALUE, "Source queue must be configured as a Dead Letter Queue.")
    target = _by_arn(call, "DestinationArn", o.destination_arn) if o.destination_arn else None
    if target is not None and target.queue == source.queue:
        raise SqsError(errors.PARAMETER_VALUE, "Source queue arn and destination queue arn cannot be the same.")
    arn = call.arn_of(source)
    tasks = call.door.tasks
    if any(task.redrive.active for task in tasks.of(source.queue)):
        raise SqsError(
            errors.PARAMETER_VALUE,
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
        )
    to_move = source.counts().visible
    redrive = call.door.broker.redrive(source, target, rate or RATE_MAX)
    task = Task(arn, call.arn_of(target) if target is not None else None, rate, to_move, call.door.now_ms(), redrive)
    tasks.add(source.queue, task)
    return shapes.StartMessageMoveTaskResult(task.handle)


async def list_message_move_tasks(call: Call, o: shapes.ListMessageMoveTasks) -> shapes.ListMessageMoveTasksResult:
    source = _by_arn(call, "SourceArn", o.source_arn)
    most = 1 if o.max_results is None else o.max_results
    if not 1 <= most <= TASKS_KEPT:
        raise invalid("MaxResults", most, f"Must be between 1 and {TASKS_KEPT}.")
    return shapes.ListMessageMoveTasksResult([task.shown() for task in call.door.tasks.of(source.queue)[:most]] or None)


async def cancel_message_move_task(call: Call, o: shapes.CancelMessageMoveTask) -> shapes.CancelMessageMoveTaskResult:
    try:
        told = json.loads(b64decode(o.task_handle, validate=True))
        source = str(told["sourceArn"])
    except (ValueError, KeyError, TypeError, RecursionError):
        source = ""
    if qa.arn_of(source) is None:
        raise SqsError(errors.PARAMETER_VALUE, "Value for parameter TaskHandle is invalid.")
    _by_arn(call, "SourceArn", source)
    task = call.door.tasks.find(o.task_handle)
    if task is None:
        raise SqsError(errors.RESOURCE_NOT_FOUND, "Task does not exist.")
    if task.redrive.status != "running":
        raise SqsError(errors.UNSUPPORTED, "Only active tasks can be cancelled.")
    await task.redrive.cancel()
    return shapes.CancelMessageMoveTaskResult(task.redrive.moved)
