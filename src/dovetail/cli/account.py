"""Make accounts and access keys, rotate and revoke them, and set quotas. A running node sees a change within a second; the first account
can be made before the first start.

A secret is printed once, when its key is made, and never again. To rotate: add a key, move the programs over, disable the old key, and
remove it when nobody has complained. A disabled key can be enabled again; a removed one is gone.

The accounts are kept in accounts.json inside the data folder of --store, or in --accounts FILE."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from ..errors import BadRequest
from ..service.accounts import QUOTA_NAMES, Account, Accounts, Key, path_beside
from ..settings import CONFIG_ENVIRONMENT, load

EXAMPLES = """\
examples:
  dovetail account create orders                          an account and its first key
  dovetail account list
  dovetail account key add orders                         a second key, to rotate
  dovetail account key disable AKIA…                      and back: key enable
  dovetail account key remove AKIA…
  dovetail account key add orders --expires 12h           a temporary key, with a session token
  dovetail account quota orders --queues-max 100 --requests-per-s none
  dovetail account create orders --json | jq -r .secret_access_key
"""

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="create|list|key|quota")
    create = _verb(verbs, "create", "make an account and its first key")
    create.add_argument("name", metavar="NAME", help="what people call it, such as orders")
    create.add_argument("--id", metavar="ID", help="twelve digits (default: made up)")
    _verb(verbs, "list", "every account, how many keys it has, and its quotas")
    keys = verbs.add_parser("key", help="add, list, disable, enable or remove access keys", allow_abbrev=False)
    key_verbs = keys.add_subparsers(dest="key_verb", required=True, metavar="add|list|disable|enable|remove")
    add = _verb(key_verbs, "add", "make one more key for an account")
    add.add_argument("account", metavar="ACCOUNT", help="its id or name")
    add.add_argument("--expires", metavar="TIME", help="a temporary key, with a session token, that ends after 900s, 30m, 12h or 7d")
    listed = _verb(key_verbs, "list", "every key, without its secret")
    listed.add_argument("account", metavar="ACCOUNT", nargs="?", help="its id or name (default: all)")
    for name, text in (("disable", "refuse a key from now on"), ("enable", "accept it again"), ("remove", "forget it for good")):
        _verb(key_verbs, name, text).add_argument("key", metavar="KEY", help="its id, AKIA…")
    quota = _verb(verbs, "quota", "show or set how much an account may use; `none` lifts a quota")
    quota.add_argument("account", metavar="ACCOUNT", help="its id or name")
    for one in QUOTA_NAMES:
        quota.add_argument(f"--{one.replace('_', '-')}", dest=one, metavar="N|none", help=QUOTA_HELP[one])


QUOTA_HELP = {
    "messages_max": "messages in all its queues",
    "bytes_max": "bytes in all its queues",
    "requests_per_s": "requests a second",
    "queues_max": "queues",
}


def run(given: argparse.Namespace) -> int:
    path = _path(given)
    # Reading first: a damaged file is told before anything is asked of it.
    accounts = Accounts.load(path)
    now_s = int(time.time())
    verb = given.verb if given.verb != "key" else f"key {given.key_verb}"
    match verb:
        case "create":
            account = accounts.create(given.name, given.id)
            _tell_key(given.json, accounts.add_key(account.id, now_s), f"account {account.id} ({account.name}) made, in {path}")
        case "list":
            _tell(given.json, [_account_row(one, now_s) for one in accounts], "there are no accounts: dovetail account create NAME")
        case "key add":
            made = accounts.add_key(given.account, now_s, _seconds(given.expires))
            _tell_key(given.json, made, f"key made for account {made.account}")
        case "key list":
            chosen = [_known(accounts, given.account)] if given.account is not None else list(accounts)
            _tell(given.json, [_key_row(key, now_s) for one in chosen for key in one.keys], "there are no keys")
        case "key disable" | "key enable":
            changed = accounts.set_enabled(given.key, given.key_verb == "enable")
            _done(given.json, _key_row(changed, now_s), f"key {changed.access_key_id} is {'enabled' if changed.enabled else 'disabled'}")
        case "key remove":
            removed = accounts.remove_key(given.key)
            _done(given.json, {"access_key_id": removed.access_key_id, "removed": True}, f"key {removed.access_key_id} is removed")
        case "quota":
            changes = {name: _limit(name, text) for name in QUOTA_NAMES if (text := getattr(given, name)) is not None}
            account = accounts.set_quota(given.account, changes) if changes else _known(accounts, given.account)
            _tell(given.json, [{"account": account.id, "name": account.name, **_quota_row(account)}], "")
    return 0


def _verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str) -> argparse.ArgumentParser:
    made = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
    made.add_argument("--accounts", metavar="FILE", help="the file of accounts (default: accounts.json in the data folder)")
    made.add_argument("--store", metavar="URL", help="the store whose data folder has the file (default: as `dovetail serve` would)")
    made.add_argument("--config", metavar="FILE", help=f"a TOML file with settings (or {CONFIG_ENVIRONMENT})")
    made.add_argument("--json", action="store_true", help="for programs")
    return made


def _path(given: argparse.Namespace) -> str:
    """The file that `dovetail serve` would use with the same flags and environment."""
    settings = load({"store": given.store, "accounts": given.accounts}, os.environ, given.config).settings
    path = settings.accounts or path_beside(settings.store)
    if path is None:
        raise BadRequest(f"{settings.store.partition(':')[0]}: has no data folder; say where the accounts are with --accounts FILE")
    return path


def _known(accounts: Accounts, id_or_name: str) -> Account:
    found = accounts.account(id_or_name)
    if found is None:
        raise BadRequest(f"there is no account {id_or_name}; `dovetail account list` shows them")
    return found


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if match is None:
        raise BadRequest(f"--expires {text}: must be a time such as 900s, 30m, 12h or 7d")
    return int(match[1]) * UNITS_S[match[2]]


def _limit(name: str, text: str) -> int | None:
    if text == "none":
        return None
    if re.fullmatch(r"[0-9]{1,18}", text) is None:
        raise BadRequest(f"--{name.replace('_', '-')} {text}: must be a whole number, or none")
    return int(text)


def _instant(at_s: int | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _quota_row(account: Account) -> dict[str, object]:
    return {name: getattr(account.quota, name) for name in QUOTA_NAMES}


def _account_row(account: Account, now_s: int) -> dict[str, object]:
    alive = sum(_state(key, now_s) == "enabled" for key in account.keys)
    return {"account": account.id, "name": account.name, "keys": len(account.keys), "enabled": alive, **_quota_row(account)}


def _key_row(key: Key, now_s: int) -> dict[str, object]:
    return {
        "access_key_id": key.access_key_id,
        "account": key.account,
        "state": _state(key, now_s),
        "created": _instant(key.created_s),
        "expires": _instant(key.expires_s),
    }


def _state(key: Key, now_s: int) -> str:
    if not key.enabled:
        return "disabled"
    return "expired" if key.expires_s is not None and key.expires_s <= now_s else "enabled"


def _tell_key(as_json: bool, key: Key, text: str) -> None:
    """The one time that a secret is shown."""
    secret = {"account": key.account, "access_key_id": key.access_key_id, "secret_access_key": key.secret}
    if key.session_token is not None:
        secret |= {"session_token": key.session_token, "expires": str(_instant(key.expires_s))}
    if as_json:
        print(json.dumps(secret))
        return
    print(text)
    print("the secret is shown this once; keep it now:\n")
    print(f"  export AWS_ACCESS_KEY_ID={key.access_key_id}")
    print(f"  export AWS_SECRET_ACCESS_KEY={key.secret}")
    if key.session_token is not None:
        print(f"  export AWS_SESSION_TOKEN={key.session_token}\n\nit ends at {secret['expires']}")


def _done(as_json: bool, row: dict[str, object], text: str) -> None:
    print(json.dumps(row) if as_json else text)


def _tell(as_json: bool, rows: Sequence[dict[str, object]], none: str) -> None:
    """A table for people, a list for programs."""
    if as_json:
        print(json.dumps(rows))
        return
    if not rows:
        print(none)
        return
    lines = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
