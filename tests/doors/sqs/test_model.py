"""The service's model, as botocore has it, is covered: every operation, member and error is handled, or refused with a reason."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import botocore.session
import msgspec
import pytest
from botocore.model import ListShape, MapShape, ServiceModel, StringShape, StructureShape
from botocore.model import Shape as ModelShape

from dovetail.doors.sqs import errors, messages, queueattributes, shapes
from dovetail.doors.sqs.actions import ACTIONS, OURS, Action
from dovetail.doors.sqs.content import system_attributes_of
from dovetail.doors.sqs.errors import KINDS, REFUSED_OF_THE_MODEL, SqsError

MODEL: ServiceModel = botocore.session.get_session().get_service_model("sqs")
OPERATIONS = sorted(MODEL.operation_names)
MISSING_LATER = {("SendMessageBatch", "Entries"), ("DeleteMessageBatch", "Entries"), ("ChangeMessageVisibilityBatch", "Entries")}
"""Required by the model, optional in our shape: an empty batch has an error of its own, which the action raises."""

EXCEPTIONS = sorted(name for name in MODEL.shape_names if MODEL.shape_for(name).metadata.get("exception"))
QUERY_CODES = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "QueueDeletedRecently": "AWS.SimpleQueueService.QueueDeletedRecently",
    "BatchEntryIdsNotDistinct": "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
    "BatchRequestTooLong": "AWS.SimpleQueueService.BatchRequestTooLong",
    "EmptyBatchRequest": "AWS.SimpleQueueService.EmptyBatchRequest",
    "InvalidBatchEntryId": "AWS.SimpleQueueService.InvalidBatchEntryId",
    "TooManyEntriesInBatchRequest": "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
    "MessageNotInflight": "AWS.SimpleQueueService.MessageNotInflight",
    "UnsupportedOperation": "AWS.SimpleQueueService.UnsupportedOperation",
    "PurgeQueueInProgress": "AWS.SimpleQueueService.PurgeQueueInProgress",
}
"""The model's traits (awsQueryError), which botocore leaves out; every other exception has its own name for a code."""
STATUSES = {"PurgeQueueInProgress": 403, "OverLimit": 403, "ResourceNotFoundException": 404}


def test_the_actions_are_those_of_the_model_and_ours_are_named_as_such() -> None:
    assert sorted(ACTIONS.keys() - OURS) == OPERATIONS
    assert len(OPERATIONS) == 23
    assert not OURS & set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_request_has_the_members_of_the_model_and_their_types(name: str) -> None:
    action, operation = ACTIONS[name], MODEL.operation_model(name)
    _compare(action.shape, operation.input_shape, name, requests=True)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_result_has_the_members_of_the_model_and_their_types(name: str) -> None:
    operation = MODEL.operation_model(name)
    result = _result(ACTIONS[name])
    if operation.output_shape is None:
        assert result is None
    else:
        assert result is not None
        _compare(result, operation.output_shape, name, requests=False)


def _result(action: Action) -> type[shapes.Shape] | None:
    told = get_type_hints(action.run)["return"]
    return None if told is type(None) else told


def _compare(shape: type[shapes.Shape], model: StructureShape, where: str, *, requests: bool) -> None:
    hints = get_type_hints(shape, include_extras=True)
    fields = {field.encode_name: field for field in msgspec.structs.fields(shape)}
    assert fields.keys() == model.members.keys(), where
    for name, member in model.members.items():
        inner = _plain(hints[fields[name].name])
        _compare_kind(inner, member, f"{where}.{name}", requests=requests)
        if requests and (where, name) not in MISSING_LATER:
            assert fields[name].required == (name in model.required_members), f"{where}.{name}"


def _plain(hint: Any) -> Any:
    """Without the annotation and without None."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (one for one in get_args(hint) if one is not type(None))
    return hint


def _compare_kind(hint: Any, member: ModelShape, where: str, *, requests: bool) -> None:
    if isinstance(member, StructureShape):
        _compare(hint, member, where, requests=requests)
    elif isinstance(member, ListShape):
        assert get_origin(hint) is list, where
        _compare_kind(get_args(hint)[0], member.member, where, requests=requests)
    elif isinstance(member, MapShape):
        assert get_origin(hint) is dict and get_args(hint)[0] is str, where
        _compare_kind(get_args(hint)[1], member.value, where, requests=requests)
    else:
        python = {"string": str, "integer": int, "long": int, "boolean": bool, "blob": bytes}
        assert hint is python[member.type_name], where


def test_every_error_of_the_model_is_given_or_refused_with_a_reason() -> None:
    kinds = {kind.name for kind in KINDS}
    refused = set(REFUSED_OF_THE_MODEL)
    assert not kinds & refused
    assert set(EXCEPTIONS) - refused <= kinds
    assert refused <= set(EXCEPTIONS), "a reason for something that the model does not have"
    assert all(reason for reason in REFUSED_OF_THE_MODEL.values())


@pytest.mark.parametrize("name", [name for name in EXCEPTIONS if name not in REFUSED_OF_THE_MODEL])
def test_an_error_of_the_model_has_its_code_and_status(name: str) -> None:
    (kind,) = {kind for kind in KINDS if kind.name == name}
    shape = MODEL.shape_for(name)
    assert (kind.code, kind.status, kind.sender) == (QUERY_CODES.get(name, name), STATUSES.get(name, 400), True)
    told = shape.metadata.get("error", {})
    if told:
        assert (told.get("code", kind.code), told.get("httpStatusCode", kind.status)) == (kind.code, kind.status)


def test_names_of_errors_and_their_codes_are_not_shared() -> None:
    names = [kind.name for kind in KINDS if kind is not errors.ACTION_MISSING]
    assert len(set(names)) == len(names)
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)


def _enum(name: str) -> set[str]:
    shape = MODEL.shape_for(name)
    assert isinstance(shape, StringShape)
    return set(shape.enum)


def test_every_attribute_of_a_queue_is_known() -> None:
    assert {*queueattributes.ALL, "All"} == _enum("QueueAttributeName")


def test_every_system_attribute_of_a_message_is_known() -> None:
    assert {*messages.SYSTEM_NAMES, "All"} == _enum("MessageSystemAttributeName")
    names = _enum("MessageSystemAttributeNameForSends")
    assert system_attributes_of({name: shapes.Value("String", "x") for name in names}) == "x"
    for name in _enum("MessageSystemAttributeName") - names:
        with pytest.raises(SqsError):
            system_attributes_of({name: shapes.Value("String", "x")})
