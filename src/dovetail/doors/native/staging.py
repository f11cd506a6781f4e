"""STAGE, PUBLISH, UNSTAGE and STAGES. A frame of a stage is the record that the log gets, as in PUSH.

**Whose stage it is.** On a node with accounts a name is kept as a hash of it that is keyed by the account: two accounts may call a stage or
an owner the same, and nobody can name, and so publish or give up, what is another's. Whoever publishes must still be allowed to send to
every queue that the stages name. (To keep the account beside the name was refused: it would be in each record and in the state, and only
this would ask for it.) What lies in stages for one's own queues can be seen, and given up, by the names under which it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

from dovetail.doors.native import answers, requests
from dovetail.doors.native.bounds import LIST_NAMES_MAX
from dovetail.doors.native.frames import Frame
from dovetail.doors.native.greeting import Caller
from dovetail.doors.native.opened import SEND
from dovetail.doors.native.pushing import checked
from dovetail.doors.native.refusals import AccessDenied
from dovetail.doors.native.requests.staging import NAME_BYTES
from dovetail.doors.native.slots import Order, Slot
from dovetail.doors.native.work import Working
from dovetail.errors import BadRequest, NoSuchStage

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection

STAGE, OWNER = b"stage", b"owner"


def kept(caller: Caller, name: bytes, what: bytes) -> bytes:
    """The name under which the node keeps a stage, or an owner, of this caller."""
    return blake2b(name, digest_size=NAME_BYTES, key=caller.account.encode(), person=what).digest() if caller.signed else name


class _Staging(Slot):
    __slots__ = ("size",)

    def __init__(self, connection: Connection, number: int, kind: int, order: Order, size: int) -> None:
        super().__init__(connection, number, kind, order)
        self.size = size
        connection.door.room.take(connection, size)

    def tell(self, outcome: Any) -> bytes:
        return answers.encode(answers.Done(self.connection.door.broker.store.staged(outcome)), self.number)

    def place(self, answer: Any) -> None:
        self.connection.door.room.give(self.connection, self.size)
        super().place(answer)


def stage(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Stage)
    door, caller = connection.door, connection.caller
    assert caller is not None
    record = bytes(request.record)
    made = door.broker.store.push_of_record(record)
    if made.numbered is not None:
        raise BadRequest("What is staged has no numbers of a producer: a batch is stored once because its publish counts once.")
    lanes = checked(connection, made)
    door.check_stage(len(made.bodies.blob))
    staging = _Staging(connection, frame.number, frame.kind, lanes[0].order, len(record))
    try:
        door.broker.store.stage_record_for(staging, kept(caller, request.stage, STAGE), made, record, request.number)
    except Exception as error:
        staging.set_exception(error)


def publish(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Publish)
    door, caller = connection.door, connection.caller
    assert caller is not None
    names = {kept(caller, name, STAGE): name for name in request.stages}
    owner = kept(caller, request.owner, OWNER)

    async def work() -> answers.Published:
        stages = [kept(caller, name, STAGE) for name in request.stages]
        if (caller.signed or door.limited) and request.batch > door.broker.store.published_last(owner):
            _check_publish(connection, stages)
        try:
            published = await door.broker.publish(stages, owner, request.batch)
        except NoSuchStage as error:
            raise _named(error, names) from None
        return answers.Published(door.durability, [answers.Joined(*one) for one in published.joined], published.before)

    Working(connection, frame.number, frame.kind, None, work)


def _check_publish(connection: Connection, stages: Sequence[bytes]) -> None:
    """May the caller send to every queue of the stages now, and may the queues hold that much more? What was allowed when it was staged may
    not be any more."""
    door = connection.door
    held = door.broker.store.staged_for(stages)
    for queue in held:
        lane = door.broker.store.lane(queue)
        if lane is not None and not door.rights(connection, lane) & SEND:
            raise AccessDenied("The policy of a queue that the stages name does not allow this. Nothing was published.")
    if door.limited:
        for queue, (messages, size) in held.items():
            door.check_push(queue, messages, size)


def _named(error: NoSuchStage, names: dict[bytes, bytes]) -> NoSuchStage:
    """The stage that is missing by the name that the caller has for it."""
    text = str(error)
    for known, name in names.items():
        text = text.replace(known.hex(), name.hex())
    return NoSuchStage(text)


def unstage(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Unstage)
    door, caller = connection.door, connection.caller
    assert caller is not None

    async def work() -> answers.Done:
        if request.kept:
            store = door.broker.store
            stages = [name for name in request.stages if _owns(connection, caller, store.staged_for([name]))]
        else:
            stages = [kept(caller, name, STAGE) for name in request.stages]
        return answers.Done(await door.broker.unstage(stages))

    Working(connection, frame.number, frame.kind, None, door.noted(connection, "DiscardStages", "", work) if request.kept else work)


def stages(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Stages)
    caller = connection.caller
    assert caller is not None
    most = min(max(request.most, 1), LIST_NAMES_MAX)

    async def work() -> answers.Staged:
        behind = connection.door.broker.store.stages_behind(request.after)
        found = list(islice((one for one in behind if _owns(connection, caller, one.queues)), most + 1))
        return answers.Staged([answers.OpenStage(*one[:4]) for one in found[:most]], len(found) > most)

    Working(connection, frame.number, frame.kind, None, work)


def _owns(connection: Connection, caller: Caller, queues: Sequence[int] | dict[int, Any] | Any) -> bool:
    """Every queue for which there is something in a stage is the caller's."""
    name_of = connection.door.broker.store.name_of
    places = [name_of(queue) for queue in queues]
    return not caller.signed or all(place is not None and caller.owns(place[0]) for place in places)
