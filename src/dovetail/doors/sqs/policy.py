"""Queue policies: who else may do what to a queue. Pure: a document and the facts of a call in, a decision out; no clock, no queue.

    statement   applies when all of these do
    Principal   the caller: everybody, an account, one identity        NotPrincipal: everybody else
    Action      the call, by pattern, whatever its case                NotAction
    Resource    the queue's ARN, by pattern                            NotResource
    Condition   every operator and key; one of its values is enough

A Deny that applies wins over every Allow. The owner needs no Allow, anybody else does, and a few actions are the owner's whatever a
policy says. What a policy asks for and we could not judge (an unknown operator, key or variable) is refused when the policy is set,
by name: a condition that is passed over would open a queue.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from operator import eq, ge, gt, le, lt
from typing import Literal, NamedTuple

from ...errors import BadRequest

POLICY_BYTES_MAX = 8192
STATEMENTS_MAX = 20
PRINCIPALS_MAX = 50
CONDITIONS_MAX = 10
ACTIONS_MAX = 7
VERSIONS = ("2012-10-17", "2008-10-17")

Decision = Literal["allow", "deny", "none"]
Test = Callable[[str], bool]

OWNER_ONLY = frozenset(
    "AddPermission CancelMessageMoveTask CreateQueue DeleteQueue ListMessageMoveTasks ListQueues ListQueueTags RemovePermission "
    "SetQueueAttributes StartMessageMoveTask TagQueue UntagQueue".split()
)
"""No policy opens these to another account."""

GRANTABLE = frozenset(
    "* ChangeMessageVisibility DeleteMessage GetQueueAttributes GetQueueUrl ListDeadLetterSourceQueues PurgeQueue ReceiveMessage "
    "SendMessage".split()
)
"""What AddPermission can give."""

CONDITION_KEYS = (
    "aws:CurrentTime aws:EpochTime aws:PrincipalAccount aws:PrincipalArn aws:Referer aws:RequestedRegion aws:ResourceAccount "
    "aws:SecureTransport aws:SourceAccount aws:SourceArn aws:SourceIp aws:UserAgent"
).split()
"""What a condition can ask about. A fact that nobody tells (here no service calls in somebody's name, so SourceArn and SourceAccount
are never told) is a key that is missing, as AWS has it."""

_KEYS = {key.lower(): key for key in CONDITION_KEYS}
_OWNER_ONLY_LOWER = frozenset(name.lower() for name in OWNER_ONLY)
_ACCOUNT = re.compile(r"[0-9]{12}")
_WHOLE_ACCOUNT = re.compile(r"([0-9]{12})|arn:aws[a-z-]*:iam::([0-9]{12}):root")
_IDENTITY = re.compile(r"arn:aws[a-z-]*:(?:iam|sts)::[0-9]{12}:[a-z-]+/[A-Za-z0-9+=,.@_/-]{1,512}")
_SERVICE = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_ACTION = re.compile(r"(?:[sS][qQ][sS]:[A-Za-z*?]+|\*)")
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")


class PolicyRefused(BadRequest):
    """The policy, or a change of it, breaks a rule. `code` is the error's name in the query protocol."""

    def __init__(self, text: str, code: str = "InvalidAttributeValue") -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Glob:
    """A pattern with * (anything) and ? (one character). The pieces between the stars are found one after the other, which never goes
    back: no pattern that a queue's owner can write takes long."""

    __slots__ = ("_last", "_pieces")

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
        texts = [re.escape(piece).replace(r"\?", ".") for piece in pattern.split("*")]
        # With one piece only there was no star, and it is the whole.
        self._pieces = [re.compile(text, flags) for text in texts[:-1]]
        self._last = re.compile(texts[-1], flags), len(pattern.rsplit("*", 1)[-1])

    def matches(self, text: str) -> bool:
        last, last_length = self._last
        if not self._pieces:
            return last.fullmatch(text) is not None
        found = self._pieces[0].match(text)
        for piece in self._pieces[1:]:
            if found is None:
                return False
            found = piece.search(text, found.end())
        return found is not None and len(text) - last_length >= found.end() and last.fullmatch(text, len(text) - last_length) is not None


class Principals(NamedTuple):
    """Whom a statement names. Services are known by name and never call here."""

    everybody: bool
    accounts: frozenset[str]
    identities: frozenset[str]
    count_named: int
    """Services included."""

    def have(self, account: str, arn: str) -> bool:
        return self.everybody or account in self.accounts or arn in self.identities


class Condition(NamedTuple):
    """One operator on one key."""

    key: str
    test: Test
    missing: bool
    """The answer when nobody told the fact."""

    def holds(self, facts: Mapping[str, str]) -> bool:
        fact = facts.get(self.key)
        return self.missing if fact is None else self.test(fact)


class Statement(NamedTuple):
    denies: bool
    principals: Principals
    principals_inverted: bool
    actions: tuple[Glob, ...]
    actions_inverted: bool
    resources: tuple[Glob, ...]
    resources_inverted: bool
    conditions: tuple[Condition, ...]

    def applies(self, account: str, arn: str, action: str, resource: str, facts: Mapping[str, str]) -> bool:
        return (
            self.principals.have(account, arn) is not self.principals_inverted
            and any(one.matches(action) for one in self.actions) is not self.actions_inverted
            and any(one.matches(resource) for one in self.resources) is not self.resources_inverted
            and all(one.holds(facts) for one in self.conditions)
        )


class Policy(NamedTuple):
    """A policy, ready to decide."""

    statements: tuple[Statement, ...]

    @property
    def asks(self) -> frozenset[str]:
        """The facts that its conditions ask about; a caller need not find out others."""
        return frozenset(one.key for statement in self.statements for one in statement.conditions)

    def decide(self, principal_account: str, principal_arn: str, action: str, resource_arn: str, facts: Mapping[str, str]) -> Decision:
        """What the policy says about a call: `action` as `sqs:SendMessage`, `facts` by the names of CONDITION_KEYS. A caller who did not
        sign has an empty account and ARN. "none" is no word about it: then the owner may and others may not."""
        # SQS has no permission of its own for batches.
        action = action.removesuffix("Batch")
        parts = resource_arn.split(":")
        region, owner = (parts[3], parts[4]) if len(parts) > 5 else ("", "")
        told = {"aws:RequestedRegion": region, "aws:ResourceAccount": owner, **facts}
        if principal_account:
            told |= {"aws:PrincipalAccount": principal_account, "aws:PrincipalArn": principal_arn}
        decision: Decision = "none"
        for statement in self.statements:
            if (statement.denies or decision == "none") and statement.applies(principal_account, principal_arn, action, resource_arn, told):
                if statement.denies:
                    return "deny"
                decision = "allow"
        if decision == "allow" and principal_account != owner and action.partition(":")[2].lower() in _OWNER_ONLY_LOWER:
            return "none"
        return decision


def parse(text: str) -> Policy:
    """The policy of a document; PolicyRefused with what is wrong."""
    return Policy(tuple(_statements(_load(text))))


def add_permission(policy_text: str | None, label: str, accounts: Sequence[str], actions: Sequence[str], queue_arn: str) -> str:
    """The policy with one more statement, as AddPermission makes it."""
    if _LABEL.fullmatch(label) is None:
        raise _parameter("Label", label, "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.")
    if not accounts or any(_ACCOUNT.fullmatch(one) is None for one in accounts):
        raise _parameter("PrincipalId", f"[{', '.join(accounts)[:200]}]", "Unable to verify.")
    if not actions:
        raise PolicyRefused("The request must contain the parameter Actions.", "MissingParameter")
    if len(actions) > ACTIONS_MAX:
        raise PolicyRefused(f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}.", "OverLimit")
    for action in actions:
        if action in OWNER_ONLY:
            raise _parameter("ActionName", f"SQS:{action}", "Only the queue owner is allowed to invoke this action.")
        if action not in GRANTABLE:
            raise _parameter("ActionName", f"SQS:{action[:100]}", "Please refer to the appropriate WSDL for a list of valid actions.")
    document = _load(policy_text) if policy_text else {"Version": "2008-10-17", "Id": f"{queue_arn}/SQSDefaultPolicy", "Statement": []}
    statements = _listed(document["Statement"])
    if any(isinstance(one, dict) and one.get("Sid") == label for one in statements):
        raise _parameter("Label", label, "Already exists.")
    added = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_many([f"arn:aws:iam::{account}:root" for account in accounts])},
        "Action": _one_or_many([f"SQS:{action}" for action in actions]),
        "Resource": queue_arn,
    }
    made = json.dumps(document | {"Statement": [*statements, added]}, separators=(",", ":"))
    parse(made)
    return made


def remove_permission(policy_text: str | None, label: str) -> str:
    """The policy without the statement of this label; empty when it was the last one."""
    document = _load(policy_text) if policy_text else {"Statement": []}
    statements = _listed(document["Statement"])
    kept = [one for one in statements if not (isinstance(one, dict) and one.get("Sid") == label)]
    if len(kept) == len(statements):
        raise _parameter("Label", label[:200], "can't find label.")
    return json.dumps(document | {"Statement": kept}, separators=(",", ":")) if kept else ""


def _parameter(name: str, value: str, reason: str) -> PolicyRefused:
    return PolicyRefused(f"Value {value[:200]} for parameter {name} is invalid. Reason: {reason}", "InvalidParameterValue")


def _wrong(reason: str) -> PolicyRefused:
    return PolicyRefused(f"Invalid value for the parameter Policy. Reason: {reason}")


def _one_or_many(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _load(text: str) -> dict[str, object]:
    if len(text) > POLICY_BYTES_MAX or len(text.encode("utf-8", "surrogatepass")) > POLICY_BYTES_MAX:
        raise _wrong(f"it is longer than {POLICY_BYTES_MAX} bytes.")

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        # Of two fields of one name a reader sees the first and a program the last.
        made = dict(pairs)
        if len(made) != len(pairs):
            raise _wrong("a field is there twice.")
        return made

    try:
        document = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise _wrong("it is not JSON.") from None
    tree = _object(document, "the policy", {"Version", "Id", "Statement"})
    if tree.get("Version", VERSIONS[1]) not in VERSIONS:
        raise _wrong(f"Version must be one of {', '.join(VERSIONS)}.")
    if not isinstance(tree.get("Id", ""), str):
        raise _wrong("Id must be a string.")
    if "Statement" not in tree:
        raise _wrong("Statement is missing.")
    return tree


def _statements(document: dict[str, object]) -> Iterator[Statement]:
    statements = _listed(document["Statement"])
    if not 1 <= len(statements) <= STATEMENTS_MAX:
        raise _wrong(f"it must have 1 to {STATEMENTS_MAX} statements.")
    variables = document.get("Version") == VERSIONS[0]
    sids: set[str] = set()
    principals_count = conditions_count = 0
    for index, value in enumerate(statements):
        where = f"statement {index + 1}"
        names = {"Sid", "Effect", "Condition", *(prefix + name for prefix in ("", "Not") for name in ("Principal", "Action", "Resource"))}
        tree = _object(value, where, names)
        sid = tree.get("Sid", "")
        if not isinstance(sid, str) or sid in sids:
            raise _wrong(f"{where}: Sid must be a string and there once.")
        sids |= {sid} - {""}
        if tree.get("Effect") not in ("Allow", "Deny"):
            raise _wrong(f"{where}: Effect must be Allow or Deny.")
        principal, principals_inverted = _either(tree, "Principal", where)
        principals = _principals(principal, where)
        principals_count += principals.count_named
        action, actions_inverted = _either(tree, "Action", where)
        resource, resources_inverted = _either(tree, "Resource", where)
        conditions = tuple(_conditions(tree.get("Condition", {}), where, variables))
        conditions_count += len(conditions)
        yield Statement(
            tree["Effect"] == "Deny",
            principals,
            principals_inverted,
            _actions(action, where),
            actions_inverted,
            tuple(Glob(_constant(one, where, variables)) for one in _strings(resource, f"{where}: Resource")),
            resources_inverted,
            conditions,
        )
    if principals_count > PRINCIPALS_MAX:
        raise _wrong(f"it has {principals_count} principals, maximum allowed is {PRINCIPALS_MAX}.")
    if conditions_count > CONDITIONS_MAX:
        raise _wrong(f"it has {conditions_count} conditions, maximum allowed is {CONDITIONS_MAX}.")


def _object(value: object, where: str, names: set[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _wrong(f"{where} must be an object.")
    for name in value:
        if name not in names:
            raise _wrong(f"{where}: {name[:100]!r} is not supported.")
    return value


def _either(tree: dict[str, object], name: str, where: str) -> tuple[object, bool]:
    """The value of `Action` or `NotAction`, and which it was."""
    if (name in tree) == (f"Not{name}" in tree):
        raise _wrong(f"{where}: it must have either {name} or Not{name}.")
    return (tree[name], False) if name in tree else (tree[f"Not{name}"], True)


def _strings(value: object, where: str) -> list[str]:
    made = []
    for one in _listed(value):
        if not isinstance(one, str) or not one:
            raise _wrong(f"{where} must be a string or a list of strings.")
        made.append(one)
    if not made:
        raise _wrong(f"{where} is empty.")
    return made


def _constant(text: str, where: str, variables: bool) -> str:
    if variables and "${" in text:
        raise _wrong(f"{where}: policy variables ({text[:100]}) are not supported.")
    return text


def _principals(value: object, where: str) -> Principals:
    if value == "*":
        return Principals(True, frozenset(), frozenset(), 1)
    tree = _object(value, f"{where}: Principal", {"AWS", "Service"})
    everybody, accounts, identities, count = False, set[str](), set[str](), 0
    for kind, given in tree.items():
        for one in _strings(given, f"{where}: Principal {kind}"):
            count += 1
            if kind == "Service":
                if _SERVICE.fullmatch(one) is None:
                    raise _wrong(f"{where}: {one[:100]!r} is not a service.")
            elif one == "*":
                everybody = True
            elif found := _WHOLE_ACCOUNT.fullmatch(one):
                accounts.add(found[1] or found[2])
            elif _IDENTITY.fullmatch(one):
                identities.add(one)
            else:
                raise _wrong(f"{where}: {one[:100]!r} is not a principal: an account's id, an ARN of iam or sts, or *.")
    if not count:
        raise _wrong(f"{where}: Principal is empty.")
    return Principals(everybody, frozenset(accounts), frozenset(identities), count)


def _actions(value: object, where: str) -> tuple[Glob, ...]:
    actions = _strings(value, f"{where}: Action")
    if len(actions) > ACTIONS_MAX:
        raise _wrong(f"{where}: {len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}.")
    for action in actions:
        if _ACTION.fullmatch(action) is None:
            raise _wrong(f"{where}: Policy statement action out of service scope! ({action[:100]!r})")
    return tuple(Glob(action, ignore_case=True) for action in actions)


def _conditions(value: object, where: str, variables: bool) -> Iterator[Condition]:
    if not isinstance(value, dict):
        raise _wrong(f"{where}: Condition must be an object.")
    for operator, keys in value.items():
        if not isinstance(keys, dict) or not keys:
            raise _wrong(f"{where}: Condition {operator[:100]} must be an object of keys and values.")
        for key, given in keys.items():
            known = _KEYS.get(key.lower())
            if known is None:
                raise _wrong(f"{where}: the condition key {key[:100]!r} is not supported; there are {', '.join(CONDITION_KEYS)}.")
            values = [_constant(_scalar(one, where), where, variables) for one in _listed(given)]
            if not values:
                raise _wrong(f"{where}: Condition {operator[:100]} {known} is empty.")
            yield _condition(operator, known, values, where)


def _scalar(value: object, where: str) -> str:
    """JSON's own true and 5 mean the same as "true" and "5"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise _wrong(f"{where}: a condition's value must be a string, a number or a list of them.")


def _condition(operator: str, key: str, values: list[str], where: str) -> Condition:
    kind, _, bare = operator.rpartition(":")
    name = bare.removesuffix("IfExists")
    if name == "Null" and not kind and bare == name:
        wanted = {_boolean(value) for value in values}
        if None in wanted:
            raise _wrong(f"{where}: Null takes true or false.")
        return Condition(key, lambda _: False in wanted, True in wanted)
    inverted = "Not" in name
    # A fact is one value here, so the set operators differ only in what they say when there is none.
    if name not in _OPERATORS or kind not in ("", "ForAnyValue", "ForAllValues"):
        supported = ", ".join([*_OPERATORS, "Null"])
        raise _wrong(f"{where}: the condition operator {operator[:100]!r} is not supported; there are {supported}.")
    try:
        tests = [_OPERATORS[name](value) for value in values]
    except (ValueError, OverflowError):
        raise _wrong(f"{where}: {operator} {key} has a value that it cannot compare with.") from None
    missing = bare != name or kind == "ForAllValues" or (inverted and kind != "ForAnyValue")

    def test(fact: str) -> bool:
        try:
            return any(one(fact) for one in tests) is not inverted
        except (ValueError, OverflowError):
            return missing  # A fact that is no number or date is like one that was not told.

    return Condition(key, test, missing)


def _boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _bool_test(value: str) -> Test:
    wanted = _boolean(value)
    if wanted is None:
        raise ValueError
    return lambda fact: _boolean(fact) is wanted


def _arn_test(value: str) -> Test:
    # Part by part: a star in the name of a region does not reach into the account.
    parts = value.split(":", 5)
    if len(parts) != 6:
        raise ValueError
    globs = [Glob(part) for part in parts]

    def test(fact: str) -> bool:
        told = fact.split(":", 5)
        return len(told) == 6 and all(glob.matches(part) for glob, part in zip(globs, told, strict=True))

    return test


def _address_test(value: str) -> Test:
    network = ipaddress.ip_network(value, strict=False)

    def test(fact: str) -> bool:
        address = ipaddress.ip_address(fact)
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return (mapped or address) in network

    return test


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError
    return value


def _instant(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", text):
        return float(text)
    made = datetime.fromisoformat(text)
    return (made if made.tzinfo is not None else made.replace(tzinfo=UTC)).timestamp()


def _ordered(read: Callable[[str], float], compare: Callable[[float, float], bool]) -> Callable[[str], Test]:
    def make(value: str) -> Test:
        bound = read(value)
        return lambda fact: compare(read(fact), bound)

    return make


_COMPARISONS = {"Equals": eq, "NotEquals": eq, "LessThan": lt, "LessThanEquals": le, "GreaterThan": gt, "GreaterThanEquals": ge}

_OPERATORS: dict[str, Callable[[str], Test]] = {
    "StringEquals": lambda value: lambda fact: fact == value,
    "StringNotEquals": lambda value: lambda fact: fact == value,
    "StringEqualsIgnoreCase": lambda value: lambda fact: fact.casefold() == value.casefold(),
    "StringNotEqualsIgnoreCase": lambda value: lambda fact: fact.casefold() == value.casefold(),
    "StringLike": lambda value: Glob(value).matches,
    "StringNotLike": lambda value: Glob(value).matches,
    "ArnEquals": _arn_test,
    "ArnNotEquals": _arn_test,
    "ArnLike": _arn_test,
    "ArnNotLike": _arn_test,
    "Bool": _bool_test,
    "IpAddress": _address_test,
    "NotIpAddress": _address_test,
    **{f"Numeric{name}": _ordered(_number, compare) for name, compare in _COMPARISONS.items()},
    **{f"Date{name}": _ordered(_instant, compare) for name, compare in _COMPARISONS.items()},
}
"""Operator → what makes a test of one value. A name with Not in it has the test of its opposite; the answer is turned round."""
