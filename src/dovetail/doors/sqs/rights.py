"""What a queue's policy allows, told to doors of other protocols: permissions have the same names and the same meaning at every door."""

from __future__ import annotations

from datetime import UTC, datetime

from dovetail.doors.sqs.actions import ACTIONS
from dovetail.doors.sqs.door import Door
from dovetail.errors import DovetailError
from dovetail.service.broker import Lane


def allowed(door: Door, account: str, lane: Lane, address: str, *, secure: bool) -> frozenset[str]:
    """The actions that an account may take on a queue: the owner whatever the policy does not deny, others what it allows."""
    try:
        arn = door.arn(lane.queue)
    except DovetailError:
        return frozenset()
    own, policy = account == arn.account, door.rules(lane).policy
    if policy is None:
        return frozenset(ACTIONS) if own else frozenset()
    principal = f"arn:aws:iam::{account}:root"
    now_ms = door.now_ms()
    facts = {
        "aws:SourceIp": address.rpartition(":")[0].strip("[]"),
        "aws:SecureTransport": "true" if secure else "false",
        "aws:PrincipalAccount": account,
        "aws:PrincipalArn": principal,
        "aws:EpochTime": str(now_ms // 1000),
        "aws:CurrentTime": datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    told = {action: policy.decide(account, principal, f"sqs:{action}", str(arn), facts) for action in ACTIONS}
    return frozenset(action for action, word in told.items() if word == "allow" or (own and word != "deny"))
