"""Every administrative act is one line that says who, what, where and how it went; no secret and no body is ever in it."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from dovetail.clock import ManualClock
from dovetail.service import audit as room
from dovetail.service.audit import AUDITED, DETAILS_MAX, SHOWN, VALUE_CHARACTERS_MAX, Audit, AuditFile, details_of


def written(action: str = "CreateQueue", **told: Any) -> dict[str, Any]:
    lines: list[str] = []
    Audit(ManualClock(1_700_000_000_007), lines.append).act(action, **{"account": "000000000000", **told})
    (line,) = lines
    assert "\n" not in line and line.isascii()
    found: dict[str, Any] = json.loads(line)
    return found


def test_an_act_is_one_line_that_says_who_what_where_and_how_it_went() -> None:
    assert written(
        "SetQueueAttributes",
        key_id="AKIAEXAMPLE",
        queue="orders",
        request_id="6f1c",
        outcome="InvalidAttributeValue",
        parameters={"QueueUrl": "http://localhost/000000000000/orders", "Attributes": {"VisibilityTimeout": "60", "DelaySeconds": 5}},
    ) == {
        "time": "2023-11-14T22:13:20.007Z",
        "account": "000000000000",
        "key": "AKIAEXAMPLE",
        "action": "SetQueueAttributes",
        "queue": "orders",
        "request": "6f1c",
        "outcome": "InvalidAttributeValue",
        "details": {"Attributes.VisibilityTimeout": "60", "Attributes.DelaySeconds": "5"},
    }


def test_without_parameters_there_are_no_details_and_the_outcome_is_ok() -> None:
    found = written("PurgeQueue", queue="orders")
    assert "details" not in found and found["outcome"] == "ok"


@pytest.mark.parametrize("action", ["SendMessage", "ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ListQueues", ""])
def test_what_changes_no_queue_and_no_account_is_not_written(action: str) -> None:
    lines: list[str] = []
    Audit(ManualClock(), lines.append).act(action, account="000000000000")
    assert lines == []


def test_every_action_of_sqs_that_changes_a_queue_is_audited() -> None:
    botocore = pytest.importorskip("botocore.session", reason="botocore is not installed")
    actions = set(botocore.get_session().get_service_model("sqs").operation_names)
    assert len(actions) == 23
    of_messages = {name for name in actions if re.search("Message(Batch|Visibility|VisibilityBatch)?$", name)}
    reading = {name for name in actions if name.startswith(("Get", "List"))}
    assert actions - of_messages - reading == AUDITED & actions


SECRET = "wJalrXUtnFEMI-bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    "parameters",
    [
        {"secret": SECRET},
        {"SecretAccessKey": SECRET},
        {"MessageBody": SECRET},
        {"Attributes": {"Password": SECRET}},
        {"Entries": [{"Id": "1", "MessageBody": SECRET}]},
        {"TaskHandle": SECRET},
        {"tags": {"owner": SECRET}},
        {"Tags": {"owner": SECRET}},
        {"key": {"secret": {"value": SECRET}}},
        {"Attributes": {"Policy": {"deep": 1}}, "x": SECRET},
    ],
)
def test_a_parameter_that_is_not_on_the_list_is_named_and_its_value_left_out(parameters: dict[str, Any]) -> None:
    assert SECRET not in json.dumps(written("CreateQueue", parameters=parameters))


def test_without_the_list_a_secret_would_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SHOWN", SHOWN | {"secret"})
    assert written(parameters={"secret": SECRET})["details"] == {"secret": SECRET}


def test_nothing_on_the_list_sounds_like_a_secret_or_a_body() -> None:
    assert [name for name in SHOWN if re.search("secret|token|password|body|signature|handle|credential", name, re.I)] == []


def test_tags_are_told_by_their_keys() -> None:
    assert details_of({"Tags": {"owner": "ann", "cost": "7"}, "TagKeys": ["a", "b"]}) == {
        "Tags.owner": "",
        "Tags.cost": "",
        "TagKeys": "a,b",
    }


def test_every_value_is_bounded_and_what_is_too_much_is_counted() -> None:
    long = "x" * 1_000_000
    found = written(
        "AddPermission",
        key_id=long,
        queue=long,
        request_id=long,
        outcome=long,
        account=long,
        parameters={"Label": long, long: "1", "Actions": [long] * 1000},
    )
    assert len(json.dumps(found)) < 12 * VALUE_CHARACTERS_MAX * 6
    assert found["details"]["Label"] == "x" * (VALUE_CHARACTERS_MAX - 1) + "…"
    many = details_of({"tags": {str(number): "" for number in range(DETAILS_MAX + 7)}})
    assert len(many) == DETAILS_MAX + 1 and many["…"] == "7 more"


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\u2028b", "\x00\x1b[31m", '"}\n{"forged": "', "\ud800"])
def test_no_value_begins_a_line_of_its_own(text: str) -> None:
    found = written("CreateQueue", queue=text, outcome=text, parameters={"QueueName": text})
    assert (found["queue"], found["outcome"], found["details"]["QueueName"]) == (text, text, text)


def test_lines_go_to_the_logger_where_no_file_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dovetail.audit"):
        Audit(ManualClock()).act("DeleteQueue", account="000000000000", queue="100%s")
    (record,) = caplog.records
    assert record.name == "dovetail.audit" and json.loads(record.getMessage())["queue"] == "100%s"


def test_a_file_gets_one_line_an_act_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("before\n")
    path.unlink()
    audit = Audit(ManualClock(), AuditFile(path))
    audit.act("CreateQueue", account="000000000000", queue="a")
    audit.act("DeleteQueue", account="000000000000", queue="a")
    assert [json.loads(line)["action"] for line in path.read_text().splitlines()] == ["CreateQueue", "DeleteQueue"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_file_that_was_moved_away_is_begun_anew_and_one_that_is_there_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("before\n")
    write = AuditFile(path)
    write("one")
    path.rename(tmp_path / "audit.log.1")
    write("two")
    path.unlink()
    write("three")
    write.close()
    assert (tmp_path / "audit.log.1").read_text() == "before\none\n" and path.read_text() == "three\n"


def test_a_line_that_was_cut_short_is_told_and_the_next_begins_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = AuditFile(tmp_path / "audit.log")
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[:2]))
    with pytest.raises(OSError, match="only a part"):
        write("one")
    monkeypatch.undo()
    write("two")
    write("three")
    assert (tmp_path / "audit.log").read_text() == "on\ntwo\nthree\n"


def test_an_act_is_done_although_it_could_not_be_written_and_somebody_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    failures: list[int] = []
    audit = Audit(ManualClock(), AuditFile(folder / "audit.log"), lambda: failures.append(1))
    (folder / "audit.log").unlink()
    folder.rmdir()
    audit.act("CreateQueue", account="000000000000", queue="orders")
    audit.act("DeleteQueue", account="000000000000", queue="orders")
    assert len(failures) == 2 and '"queue": "orders"' in caplog.text
    folder.mkdir()
    audit.act("PurgeQueue", account="000000000000", queue="orders")
    assert len(failures) == 2 and json.loads((folder / "audit.log").read_text())["action"] == "PurgeQueue"
