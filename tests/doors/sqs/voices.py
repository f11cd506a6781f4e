"""Every way in which a client can say the same: a voice takes an action and its members and gives the result, or raises Refused.

Each voice holds the answer to its protocol on the way (status, content type, request id, the two names of an error), so that tests
compare what was said and not how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from tests.doors.sqs.callers import UUID, Answer, Caller, Refused, of_xml, of_xml_error

XML_TYPE, JSON_TYPE, ACCEPTED_TYPE = "text/xml", "application/x-amz-json-1.0", "application/json"

Result = dict[str, Any] | None


class Voice(Protocol):
    def __call__(self, action: str, **members: Any) -> Result: ...


def _checked(answer: Answer, content_type: str) -> Answer:
    assert answer.headers["x-amzn-requestid"] == UUID
    if answer.body:
        assert answer.headers["content-type"] == content_type
    return answer


def json_result(answer: Answer) -> Result:
    """What an answer in AWS JSON says, held to its protocol."""
    _checked(answer, JSON_TYPE)
    told = answer.headers.keys()
    if answer.status == 200:
        assert not {"x-amzn-query-error", "x-amzn-errortype"} & told
        return answer.json if answer.body else None
    assert answer.json.keys() == {"__type", "message"}
    prefix, _, name = answer.json["__type"].partition("#")
    code, _, fault = answer.headers["x-amzn-query-error"].partition(";")
    assert (prefix, answer.headers["x-amzn-errortype"]) == ("com.amazonaws.sqs", answer.json["__type"])
    assert fault == ("Sender" if answer.status < 500 else "Receiver")
    raise Refused(code, answer.json["message"], answer.status, name)


def xml_result(action: str, answer: Answer) -> Result:
    _checked(answer, XML_TYPE)
    assert not {"x-amzn-query-error", "x-amzn-errortype"} & answer.headers.keys()
    if answer.status == 200:
        result, request_id = of_xml(action, answer.body)
        assert request_id == answer.headers["x-amzn-requestid"]
        return result
    kind, code, message, request_id = of_xml_error(answer.body)
    assert request_id == answer.headers["x-amzn-requestid"]
    assert kind == ("Sender" if answer.status < 500 else "Receiver")
    raise Refused(code, message, answer.status)


def _as_aws_json(action: str, told: Any) -> Any:
    """What the older JSON says, in the words of the newer: no nulls, maps for lists of name and value, two names with a capital."""
    if isinstance(told, list):
        if told and all(isinstance(one, dict) and one.keys() in ({"Name", "Value"}, {"Key", "Value"}) for one in told):
            return {one.get("Name", one.get("Key")): _as_aws_json(action, one["Value"]) for one in told}
        return [_as_aws_json(action, one) for one in told]
    if not isinstance(told, dict):
        return told
    renamed = {"messages": "Messages"} | ({"queueUrls": "QueueUrls"} if action == "ListQueues" else {})
    return {renamed.get(name, name): _as_aws_json(action, one) for name, one in told.items() if one is not None}


def accepted_result(action: str, answer: Answer) -> Result:
    """JSON over the query protocol, for callers that accept nothing else."""
    _checked(answer, ACCEPTED_TYPE)
    request_id = answer.headers["x-amzn-requestid"]
    told = answer.json
    if answer.status == 200:
        (response,) = told.values()
        assert told.keys() == {f"{action}Response"}
        assert response.pop("ResponseMetadata") == {"RequestId": request_id}
        assert response.keys() <= {f"{action}Result"}
        result: Result = _as_aws_json(action, response.get(f"{action}Result"))
        return result
    error = told["Error"]
    assert told == {
        "Error": {"Type": error["Type"], "Code": error["Code"], "Message": error["Message"], "Detail": None},
        "RequestId": request_id,
    }
    raise Refused(error["Code"], error["Message"], answer.status)


def _path(members: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The queue's URL as the place of the call instead of a member."""
    rest = {name: value for name, value in members.items() if name != "QueueUrl"}
    return urlsplit(members.get("QueueUrl", "/")).path or "/", rest


def voices(caller: Caller, client: Any) -> dict[str, Voice]:
    def boto3(action: str, **members: Any) -> Result:
        words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in action).strip("_")
        try:
            told: dict[str, Any] = getattr(client, words)(**members)
        except ClientError as error:
            answer = error.response
            assert answer["Error"]["Type"] == "Sender"
            raise Refused(
                answer["Error"]["Code"],
                answer["Error"]["Message"],
                answer["ResponseMetadata"]["HTTPStatusCode"],
                answer["Error"]["QueryErrorCode"],
            ) from None
        assert told.pop("ResponseMetadata")["HTTPStatusCode"] == 200
        return told or None

    def json(action: str, **members: Any) -> Result:
        return json_result(caller.json(action, members))

    def post(action: str, **members: Any) -> Result:
        return xml_result(action, caller.query(action, members))

    def post_to_queue(action: str, **members: Any) -> Result:
        path, rest = _path(members)
        return xml_result(action, caller.query(action, rest, path))

    def get(action: str, **members: Any) -> Result:
        return xml_result(action, caller.get(action, members))

    def get_from_queue(action: str, **members: Any) -> Result:
        path, rest = _path(members)
        return xml_result(action, caller.get(action, rest, path))

    def get_accepting_json(action: str, **members: Any) -> Result:
        return accepted_result(action, caller.get(action, members, headers={"Accept": "application/json"}))

    made = (boto3, json, post, post_to_queue, get, get_from_queue, get_accepting_json)
    return {voice.__name__: voice for voice in made}


NAMES = ("boto3", "json", "post", "post_to_queue", "get", "get_from_queue", "get_accepting_json")
RAW_NAMES = NAMES[1:]
"""Those that say what a client library would not let pass."""
