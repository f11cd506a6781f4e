"""SQS's service model as clients had it before November 2023, when the query protocol was the only one: today's model of botocore with the
names that lists and maps have in forms. botocore still speaks that protocol (SNS uses it), so with this file an unmodified client does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore.session

_LISTS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "MessageSystemAttributeList": "AttributeName",
    "MessageAttributeNameList": "MessageAttributeName",
    "QueueUrlList": "QueueUrl",
    "TagKeyList": "TagKey",
    "StringList": "StringListValue",
    "BinaryList": "BinaryListValue",
}
"""Other lists are called after the shape of their items."""

_MAPS = {
    "Attributes": "Attribute",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "tags": "Tag",
    "Tags": "Tag",
}

_PREFIX = "AWS.SimpleQueueService."
_CODES = {"QueueDoesNotExist": f"{_PREFIX}NonExistentQueue", "QueueNameExists": "QueueAlreadyExists"}
_PREFIXED = (
    "BatchEntryIdsNotDistinct BatchRequestTooLong EmptyBatchRequest InvalidBatchEntryId MessageNotInflight PurgeQueueInProgress "
    "QueueDeletedRecently TooManyEntriesInBatchRequest UnsupportedOperation"
)
"""Codes of errors that differ from their names."""


def query_model() -> dict[str, Any]:
    session = botocore.session.get_session()
    model = json.loads(json.dumps(session.get_component("data_loader").load_service_model("sqs", "service-2")))
    metadata = model["metadata"]
    for name in ("awsQueryCompatible", "jsonVersion", "targetPrefix", "protocols"):
        metadata.pop(name, None)
    metadata |= {"protocol": "query", "xmlNamespace": "http://queue.amazonaws.com/doc/2012-11-05/"}
    for operation in model["operations"].values():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{operation['name']}Result"
    shapes = model["shapes"]
    for name, shape in shapes.items():
        if shape["type"] == "list":
            shape["member"]["locationName"] = _LISTS.get(name, shape["member"]["shape"])
        elif shape["type"] == "map":
            shape["key"]["locationName"] = "Key" if name == "TagMap" else "Name"
            shape["value"]["locationName"] = "Value"
        elif shape["type"] == "structure":
            for key, member in shape["members"].items():
                if shapes[member["shape"]]["type"] == "map":
                    member["locationName"] = _MAPS[key]
        if shape.get("exception"):
            code = _CODES.get(name, f"{_PREFIX}{name}" if name in _PREFIXED.split() else name)
            shape["error"] = {"code": code, "senderFault": True}
    # The later of the two names that a receiver's list has had was never part of the old protocol's clients.
    shapes["ReceiveMessageRequest"]["members"].pop("MessageSystemAttributeNames", None)
    return dict(model)


def write(folder: Path) -> Path:
    """A folder for AWS_DATA_PATH, which is where botocore looks for models of one's own."""
    place = folder / "sqs" / "2012-11-05"
    place.mkdir(parents=True)
    (place / "service-2.json").write_text(json.dumps(query_model()))
    return folder
