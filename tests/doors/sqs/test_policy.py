"""Promises of queue policies: a deny wins, others need an allow, and what cannot be judged is refused by name when it is set."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.doors.sqs.policy import (
    CONDITION_KEYS,
    OWNER_ONLY,
    POLICY_BYTES_MAX,
    Glob,
    PolicyRefused,
    add_permission,
    parse,
    remove_permission,
)

OWNER, FRIEND, STRANGER = "111111111111", "222222222222", "333333333333"
ARN = f"arn:aws:sqs:us-east-1:{OWNER}:orders"
Tree = dict[str, Any]


def root(account: str) -> str:
    return f"arn:aws:iam::{account}:root"


def statement(**changes: object) -> Tree:
    made = {"Effect": "Allow", "Principal": {"AWS": FRIEND}, "Action": "sqs:SendMessage", "Resource": ARN} | changes
    return {name: value for name, value in made.items() if value is not None}


def document(*statements: Tree, version: str = "2012-10-17") -> str:
    return json.dumps({"Version": version, "Statement": list(statements)})


def decide(text: str, account: str = FRIEND, action: str = "SendMessage", arn: str | None = None, **facts: str) -> str:
    told = {name.replace("_", ":", 1): value for name, value in facts.items()}
    return parse(text).decide(account, root(account) if arn is None else arn, f"sqs:{action}", ARN, told)


def refused(text: str) -> str:
    with pytest.raises(PolicyRefused) as caught:
        parse(text)
    start = "Invalid value for the parameter Policy. Reason: "
    assert (str(caught.value).startswith(start), caught.value.code) == (True, "InvalidAttributeValue")
    return str(caught.value).removeprefix(start)


def test_an_allow_is_for_whom_and_what_it_names() -> None:
    text = document(statement())
    assert decide(text) == "allow"
    assert decide(text, STRANGER) == decide(text, OWNER) == decide(text, "", arn="") == "none"
    assert decide(text, action="ReceiveMessage") == "none"
    assert parse(text).decide(FRIEND, root(FRIEND), "sqs:SendMessage", ARN + "2", {}) == "none"


def test_a_deny_wins_wherever_it_stands_and_over_the_owner_too() -> None:
    everybody = statement(Principal="*", Action="sqs:*")
    deny = statement(Effect="Deny", Principal="*", Action="sqs:DeleteMessage")
    for text in (document(everybody, deny), document(deny, everybody)):
        assert decide(text, action="DeleteMessage") == decide(text, OWNER, "DeleteMessage") == "deny"
        assert decide(text) == decide(text, OWNER) == "allow"


@pytest.mark.parametrize(
    ("principal", "who"),
    [
        ("*", {OWNER, FRIEND, STRANGER, ""}),
        ({"AWS": "*"}, {OWNER, FRIEND, STRANGER, ""}),
        ({"AWS": FRIEND}, {FRIEND}),
        ({"AWS": root(FRIEND)}, {FRIEND}),
        ({"AWS": [root(FRIEND), STRANGER]}, {FRIEND, STRANGER}),
        ({"AWS": f"arn:aws:iam::{FRIEND}:user/ann"}, set()),
        ({"Service": "sns.amazonaws.com"}, set()),
        ({"Service": ["sns.amazonaws.com"], "AWS": STRANGER}, {STRANGER}),
    ],
)
def test_principals(principal: object, who: set[str]) -> None:
    callers = {account: root(account) if account else "" for account in (OWNER, FRIEND, STRANGER, "")}
    text = document(statement(Principal=principal))
    assert {account for account, arn in callers.items() if decide(text, account, arn=arn) == "allow"} == who
    inverted = document(statement(Principal=None, NotPrincipal=principal))
    assert {account for account, arn in callers.items() if decide(inverted, account, arn=arn) == "allow"} == set(callers) - who


def test_one_identity_is_known_by_its_arn() -> None:
    ann = f"arn:aws:iam::{FRIEND}:user/ann"
    text = document(statement(Principal={"AWS": ann}))
    assert (decide(text, arn=ann), decide(text, arn=ann + "a"), decide(text)) == ("allow", "none", "none")


@pytest.mark.parametrize(
    ("pattern", "actions"),
    [
        ("sqs:*", {"SendMessage", "ReceiveMessage", "DeleteMessage", "GetQueueUrl"}),
        ("*", {"SendMessage", "ReceiveMessage", "DeleteMessage", "GetQueueUrl"}),
        ("SQS:sendmessage", {"SendMessage"}),
        ("sqs:*Message", {"SendMessage", "ReceiveMessage", "DeleteMessage"}),
        ("sqs:?e????Message", {"DeleteMessage"}),
        ("sqs:??n?Message", {"SendMessage"}),
        (["sqs:Get*", "sqs:Receive*"], {"GetQueueUrl", "ReceiveMessage"}),
    ],
)
def test_actions(pattern: object, actions: set[str]) -> None:
    every = {"SendMessage", "ReceiveMessage", "DeleteMessage", "GetQueueUrl"}
    assert {one for one in every if decide(document(statement(Action=pattern)), action=one) == "allow"} == actions
    inverted = document(statement(Action=None, NotAction=pattern))
    assert {one for one in every if decide(inverted, action=one) == "allow"} == every - actions


def test_a_batch_is_allowed_and_denied_with_its_action() -> None:
    assert decide(document(statement()), action="SendMessageBatch") == "allow"
    assert decide(document(statement(Effect="Deny")), action="SendMessageBatch") == "deny"


@pytest.mark.parametrize("action", sorted(OWNER_ONLY))
def test_some_actions_are_the_owners_whatever_a_policy_allows(action: str) -> None:
    text = document(statement(Principal="*", Action="sqs:*"))
    assert (decide(text, action=action), decide(text, OWNER, action)) == ("none", "allow")
    assert decide(document(statement(Effect="Deny", Principal="*", Action="sqs:*")), action=action) == "deny"


@pytest.mark.parametrize(
    ("resource", "yes"),
    [
        (ARN, True),
        ("*", True),
        ("arn:aws:sqs:*:*:ord*", True),
        ("arn:aws:sqs:us-east-?:*", True),
        (ARN.upper(), False),
        (["a", "*s"], True),
    ],
)
def test_resources(resource: object, yes: bool) -> None:
    assert decide(document(statement(Resource=resource))) == ("allow" if yes else "none")
    assert decide(document(statement(Resource=None, NotResource=resource))) == ("none" if yes else "allow")


CONDITIONS: list[tuple[str, str, object, str, bool]] = [
    ("StringEquals", "aws:UserAgent", "curl", "curl", True),
    ("StringEquals", "aws:UserAgent", ["a", "curl"], "curl", True),
    ("StringEquals", "AWS:useragent", "curl", "Curl", False),
    ("StringEqualsIgnoreCase", "aws:UserAgent", "curl", "CURL", True),
    ("StringNotEquals", "aws:UserAgent", ["a", "curl"], "curl", False),
    ("StringNotEquals", "aws:UserAgent", ["a", "b"], "curl", True),
    ("StringNotEqualsIgnoreCase", "aws:UserAgent", "curl", "CURL", False),
    ("StringLike", "aws:UserAgent", "Boto*/1.?", "Boto3/1.4", True),
    ("StringNotLike", "aws:UserAgent", "Boto*", "Boto3", False),
    ("ArnEquals", "aws:SourceArn", "arn:aws:sns:*:111111111111:top*", "arn:aws:sns:eu-west-1:111111111111:topic", True),
    ("ArnLike", "aws:SourceArn", "arn:aws:s*:*:*:*", "arn:aws:s3:::bucket", True),
    ("ArnNotLike", "aws:SourceArn", "arn:aws:sns:*:*:*", "arn:aws:s3:::bucket", True),
    ("ArnNotEquals", "aws:SourceArn", "arn:aws:s3:*:*:*", "arn:aws:s3:::bucket", False),
    ("NumericEquals", "aws:EpochTime", "5", "5.0", True),
    ("NumericNotEquals", "aws:EpochTime", 5, "5", False),
    ("NumericLessThan", "aws:EpochTime", 5, "5", False),
    ("NumericLessThanEquals", "aws:EpochTime", 5, "5", True),
    ("NumericGreaterThan", "aws:EpochTime", "5", "6", True),
    ("NumericGreaterThanEquals", "aws:EpochTime", "5", "4", False),
    ("NumericEquals", "aws:EpochTime", "5", "five", False),
    ("DateLessThan", "aws:CurrentTime", "2026-11-17T00:00:00Z", "2026-11-16T23:59:59Z", True),
    ("DateLessThanEquals", "aws:CurrentTime", "2026-11-17", "2026-11-17T00:00:00Z", True),
    ("DateGreaterThan", "aws:CurrentTime", "2026-11-17T00:00:00+01:00", "2026-11-16T23:30:00Z", True),
    ("DateGreaterThanEquals", "aws:EpochTime", "2026-11-17T00:00:00Z", "1794873600", True),
    ("DateEquals", "aws:EpochTime", "1794873600", "1794873600", True),
    ("DateNotEquals", "aws:EpochTime", "1794873600", "1794873600", False),
    ("Bool", "aws:SecureTransport", "true", "true", True),
    ("Bool", "aws:SecureTransport", True, "false", False),
    ("Bool", "aws:SecureTransport", False, "false", True),
    ("IpAddress", "aws:SourceIp", "10.0.0.0/8", "10.1.2.3", True),
    ("IpAddress", "aws:SourceIp", ["192.168.0.1", "10.0.0.0/8"], "::ffff:10.1.2.3", True),
    ("IpAddress", "aws:SourceIp", "2001:db8::/32", "2001:db8::1", True),
    ("IpAddress", "aws:SourceIp", "10.0.0.0/8", "2001:db8::1", False),
    ("NotIpAddress", "aws:SourceIp", "10.0.0.0/8", "10.1.2.3", False),
    ("NotIpAddress", "aws:SourceIp", "10.0.0.0/8", "11.1.2.3", True),
    ("Null", "aws:SourceIp", "false", "10.1.2.3", True),
    ("Null", "aws:SourceIp", "true", "10.1.2.3", False),
    ("ForAnyValue:StringEquals", "aws:UserAgent", ["a", "curl"], "curl", True),
    ("ForAllValues:StringLike", "aws:UserAgent", ["a", "curl"], "b", False),
    ("StringEqualsIfExists", "aws:UserAgent", "curl", "wget", False),
]


@pytest.mark.parametrize(("operator", "key", "value", "fact", "holds"), CONDITIONS)
def test_conditions(operator: str, key: str, value: object, fact: str, holds: bool) -> None:
    known = next(one for one in CONDITION_KEYS if one.lower() == key.lower())
    policy = parse(document(statement(Condition={operator: {key: value}})))
    assert policy.asks == {known}
    assert policy.decide(FRIEND, root(FRIEND), "sqs:SendMessage", ARN, {known: fact}) == ("allow" if holds else "none")


@pytest.mark.parametrize(
    ("operator", "value", "holds"),
    [
        ("StringEquals", "x", False),
        ("StringNotEquals", "x", True),
        ("StringEqualsIfExists", "x", True),
        ("NotIpAddress", "10.0.0.0/8", True),
        ("IpAddress", "10.0.0.0/8", False),
        ("NumericLessThan", "5", False),
        ("Null", "true", True),
        ("Null", "false", False),
        ("ForAnyValue:StringNotEquals", "x", False),
        ("ForAllValues:StringEquals", "x", True),
    ],
)
def test_a_fact_that_nobody_told(operator: str, value: str, holds: bool) -> None:
    assert decide(document(statement(Condition={operator: {"aws:SourceIp": value}}))) == ("allow" if holds else "none")


def test_every_condition_must_hold() -> None:
    both = {"Bool": {"aws:SecureTransport": "true"}, "IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}
    text = document(statement(Condition=both))
    assert decide(text, aws_SecureTransport="true", aws_SourceIp="10.0.0.1") == "allow"
    assert decide(text, aws_SecureTransport="false", aws_SourceIp="10.0.0.1") == "none"
    assert decide(text, aws_SecureTransport="true", aws_SourceIp="11.0.0.1") == "none"


def test_who_calls_and_what_is_called_are_facts_that_a_caller_cannot_choose() -> None:
    for key, value in (
        ("aws:PrincipalAccount", FRIEND),
        ("aws:PrincipalArn", root(FRIEND)),
        ("aws:ResourceAccount", OWNER),
        ("aws:RequestedRegion", "us-east-1"),
    ):
        text = document(statement(Principal="*", Condition={"StringEquals": {key: value}}))
        assert decide(text) == "allow"
    text = document(statement(Principal="*", Condition={"StringEquals": {"aws:PrincipalAccount": FRIEND}}))
    assert decide(text, STRANGER, aws_PrincipalAccount=FRIEND) == "none"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not JSON."),
        ("{", "it is not JSON."),
        ("[]", "the policy must be an object."),
        ("[" * 5000, "it is not JSON."),
        ("{}", "Statement is missing."),
        ('{"Statement":[],"Statement":[]}', "a field is there twice."),
        ('{"Statement":[]}', "it must have 1 to 20 statements."),
        ('{"Statement":[5]}', "statement 1 must be an object."),
        (document(statement(), version="2020-01-01"), "Version must be one of 2012-10-17, 2008-10-17."),
        ('{"Id":5,"Statement":[]}', "Id must be a string."),
        (document(*[statement()] * 21), "it must have 1 to 20 statements."),
        (document(statement(Sid="a"), statement(Sid="a")), "statement 2: Sid must be a string and there once."),
        (document(statement(Effect="allow")), "statement 1: Effect must be Allow or Deny."),
        (document(statement(Principal=None)), "statement 1: it must have either Principal or NotPrincipal."),
        (document(statement(NotAction="sqs:*")), "statement 1: it must have either Action or NotAction."),
        (document(statement(Resource=None)), "statement 1: it must have either Resource or NotResource."),
        (document(statement(Resource=[])), "statement 1: Resource is empty."),
        (document(statement(Resource=5)), "statement 1: Resource must be a string or a list of strings."),
        (document(statement(Priority=1)), "statement 1: 'Priority' is not supported."),
        (document(statement(Principal={"Federated": "x"})), "statement 1: Principal: 'Federated' is not supported."),
        (document(statement(Principal={})), "statement 1: Principal is empty."),
        (
            document(statement(Principal={"AWS": "ann"})),
            "statement 1: 'ann' is not a principal: an account's id, an ARN of iam or sts, or *.",
        ),
        (document(statement(Principal={"AWS": [OWNER] * 51})), "it has 51 principals, maximum allowed is 50."),
        (document(statement(Action="s3:GetObject")), "statement 1: Policy statement action out of service scope! ('s3:GetObject')"),
        (document(statement(Action=["sqs:a"] * 8)), "statement 1: 8 Actions were found, maximum allowed is 7."),
        (document(statement(Condition=[])), "statement 1: Condition must be an object."),
        (document(statement(Condition={"Bool": "true"})), "statement 1: Condition Bool must be an object of keys and values."),
        (document(statement(Condition={"Bool": {"aws:SecureTransport": []}})), "statement 1: Condition Bool aws:SecureTransport is empty."),
        (document(statement(Condition={"Null": {"aws:SourceIp": "maybe"}})), "statement 1: Null takes true or false."),
        (
            document(statement(Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/64"}})),
            "statement 1: IpAddress aws:SourceIp has a value that it cannot compare with.",
        ),
        (
            document(statement(Condition={"NumericEquals": {"aws:EpochTime": "nan"}})),
            "statement 1: NumericEquals aws:EpochTime has a value that it cannot compare with.",
        ),
        (
            document(statement(Condition={"StringEquals": {"aws:SourceArn": {"a": 1}}})),
            "statement 1: a condition's value must be a string, a number or a list of them.",
        ),
        (
            document(statement(Resource="arn:aws:sqs:*:*:${aws:username}")),
            "statement 1: policy variables (arn:aws:sqs:*:*:${aws:username}) are not supported.",
        ),
    ],
)
def test_what_is_wrong_with_a_policy_is_told(text: str, reason: str) -> None:
    assert refused(text) == reason


def test_a_key_or_operator_that_we_cannot_judge_is_refused_by_name() -> None:
    key = refused(document(statement(Condition={"StringEquals": {"aws:PrincipalOrgID": "o-1"}})))
    assert key.startswith("statement 1: the condition key 'aws:PrincipalOrgID' is not supported; there are aws:CurrentTime, ")
    for name in ("BinaryEquals", "NullIfExists", "ForSomeValues:StringEquals", "ForAnyValue:Null", "Equals", ""):
        operator = refused(document(statement(Condition={name: {"aws:UserAgent": "x"}})))
        assert operator.startswith(f"statement 1: the condition operator {name!r} is not supported; there are StringEquals, ")


def test_limits_hold_at_the_limit_and_one_past_it() -> None:
    conditions = {"StringLike": dict.fromkeys(CONDITION_KEYS[:10], "1")}
    parse(document(statement(Condition=conditions)))
    conditions["StringLike"][CONDITION_KEYS[10]] = "1"
    assert refused(document(statement(Condition=conditions))) == "it has 11 conditions, maximum allowed is 10."
    parse(document(*[statement()] * 20))
    parse(document(statement(Principal={"AWS": [OWNER] * 50}, Action=["sqs:a"] * 7)))
    whole = document(statement())
    parse(whole + " " * (POLICY_BYTES_MAX - len(whole)))
    assert refused(whole + " " * (POLICY_BYTES_MAX - len(whole) + 1)) == "it is longer than 8192 bytes."


def test_add_permission_makes_the_statement_that_aws_makes() -> None:
    text = add_permission(None, "first", [FRIEND], ["SendMessage"], ARN)
    assert json.loads(text) == {
        "Version": "2008-10-17",
        "Id": f"{ARN}/SQSDefaultPolicy",
        "Statement": [
            {"Sid": "first", "Effect": "Allow", "Principal": {"AWS": root(FRIEND)}, "Action": "SQS:SendMessage", "Resource": ARN}
        ],
    }
    both = add_permission(text, "second", [FRIEND, STRANGER], ["ReceiveMessage", "*"], ARN)
    assert json.loads(both)["Statement"][1] == {
        "Sid": "second",
        "Effect": "Allow",
        "Principal": {"AWS": [root(FRIEND), root(STRANGER)]},
        "Action": ["SQS:ReceiveMessage", "SQS:*"],
        "Resource": ARN,
    }
    assert (decide(text), decide(text, STRANGER), decide(both, STRANGER)) == ("allow", "none", "allow")
    assert remove_permission(both, "second") == text
    assert remove_permission(text, "first") == ""


@pytest.mark.parametrize(
    ("label", "accounts", "actions", "told"),
    [
        (
            "here",
            [FRIEND],
            ["SendMessage"],
            ("InvalidParameterValue", "Value here for parameter Label is invalid. Reason: Already exists."),
        ),
        ("no blanks", [FRIEND], ["SendMessage"], ("InvalidParameterValue", "Value no blanks for parameter Label is invalid. Reason: ")),
        ("new", [], ["SendMessage"], ("InvalidParameterValue", "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.")),
        ("new", ["ann"], ["SendMessage"], ("InvalidParameterValue", "Value [ann] for parameter PrincipalId is invalid. Reason: ")),
        ("new", [FRIEND], [], ("MissingParameter", "The request must contain the parameter Actions.")),
        ("new", [FRIEND], ["SendMessage"] * 8, ("OverLimit", "8 Actions were found, maximum allowed is 7.")),
        (
            "new",
            [FRIEND],
            ["DeleteQueue"],
            (
                "InvalidParameterValue",
                "Value SQS:DeleteQueue for parameter ActionName is invalid. Reason: Only the queue owner is allowed to invoke this action.",
            ),
        ),
        (
            "new",
            [FRIEND],
            ["Fly"],
            (
                "InvalidParameterValue",
                "Value SQS:Fly for parameter ActionName is invalid."
                " Reason: Please refer to the appropriate WSDL for a list of valid actions.",
            ),
        ),
    ],
)
def test_add_permission_refuses_with_the_words_of_aws(label: str, accounts: list[str], actions: list[str], told: tuple[str, str]) -> None:
    there = add_permission(None, "here", [FRIEND], ["SendMessage"], ARN)
    with pytest.raises(PolicyRefused) as caught:
        add_permission(there, label, accounts, actions, ARN)
    assert (caught.value.code, str(caught.value)[: len(told[1])]) == told


@pytest.mark.parametrize("text", [None, "", document(statement(Sid="other"))])
def test_a_label_that_is_not_there_cannot_be_removed(text: str | None) -> None:
    with pytest.raises(PolicyRefused) as caught:
        remove_permission(text, "gone")
    assert str(caught.value) == "Value gone for parameter Label is invalid. Reason: can't find label."


def test_permissions_stop_at_the_limits_of_a_policy() -> None:
    text = document(*[statement()] * 20)
    with pytest.raises(PolicyRefused, match="1 to 20 statements"):
        add_permission(text, "more", [FRIEND], ["SendMessage"], ARN)


@settings(deadline=None)
@given(st.text("ab*?", max_size=12), st.text("ab", max_size=12))
def test_patterns_match_as_the_plain_definition_says(pattern: str, text: str) -> None:
    def plain(p: str, t: str) -> bool:
        if not p:
            return not t
        if p[0] == "*":
            return any(plain(p[1:], t[n:]) for n in range(len(t) + 1))
        return bool(t) and p[0] in ("?", t[0]) and plain(p[1:], t[1:])

    assert Glob(pattern).matches(text) is plain(pattern, text)


def test_a_pattern_made_to_be_slow_is_not() -> None:
    # Going back over each star would take longer than the universe has; that it ends at all is the promise.
    assert not Glob("*a" * 2000 + "b").matches("a" * 8000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["*", "sqs:*", "Allow", "AWS", ARN, OWNER]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["Statement", "Effect", "Principal", "Action", "Resource", "Condition", "AWS", "StringLike", "aws:SourceIp", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(JSON, st.text(max_size=20))
def test_nothing_but_a_refusal_comes_of_junk(tree: object, text: str) -> None:
    junk = json.dumps(tree)
    for one in (text, junk, json.dumps({"Statement": tree}), document(statement(Condition=tree)), document(statement(Principal=tree))):
        try:
            parse(one).decide(FRIEND, root(FRIEND), text, text, {"aws:SourceIp": text})
        except PolicyRefused:
            pass
