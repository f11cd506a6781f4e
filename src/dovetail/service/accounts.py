"""Accounts and their access keys: who exists, what they sign with, how much they may use. Kept in one small file, changed by commands,
read by running nodes. It knows no protocol and no queue; what a key's signature looks like is a door's business.

    {"format": 1,
     "accounts": [
        {"id": "123456789012", "name": "orders", "quota": {"queues_max": 100},
         "keys": [{"id": "AKIA…", "secret": "…", "enabled": true, "created_s": 1800000000},
                  {"id": "ASIA…", "secret": "…", "enabled": true, "created_s": …, "expires_s": …, "session_token": "…"}]}]}

The file is replaced whole (a new file, synced, renamed over the old one), so a reader sees the old set or the new one and never a half.
It holds secrets in the clear, because a signature cannot be verified without them: it is refused when others could read it.
Whoever changes it holds a lock on its folder, so that two commands at once both take effect.
"""

from __future__ import annotations

import base64
import fcntl
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple, TypeVar

from ..errors import BadRequest

T = TypeVar("T")

FORMAT_VERSION = 1
FILE_NAME = "accounts.json"
FILE_BYTES_MAX = 8 * 1024 * 1024
KEYS_PER_ACCOUNT_MAX = 16
"""Two are enough to rotate; the rest is room for temporary ones."""
QUOTA_MAX = 1 << 60
EXPIRES_S_MAX = 366 * 24 * 3600

ENVIRONMENT_KEY_ID = "DOVETAIL_ACCESS_KEY_ID"
ENVIRONMENT_SECRET = "DOVETAIL_SECRET_ACCESS_KEY"
ACCOUNT_DEFAULT = "000000000000"

_ID = re.compile(r"[0-9]{12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_KEY_ID = re.compile(r"[A-Za-z0-9_]{3,128}")
_SECRET = re.compile(r"[!-~]{8,128}")
_TOKEN = re.compile(r"[!-~]{8,2048}")

_RULES = {
    "id": "an account's id is twelve digits",
    "name": "a name begins with a letter or digit and has up to 64 letters, digits and _ . @ -",
    "key": "an access key id has 3 to 128 letters, digits and _",
    "secret": "a secret has 8 to 128 printable characters without blanks",
    "token": "a session token has 8 to 2048 printable characters without blanks",
}

log = logging.getLogger("dovetail.accounts")


class AccountsRefused(BadRequest):
    """The file of accounts cannot be used as it is."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How much an account may use; None is as much as there is."""

    messages_max: int | None = None
    bytes_max: int | None = None
    requests_per_s: int | None = None
    queues_max: int | None = None


QUOTA_NAMES = tuple(one.name for one in fields(Quota))


@dataclass(frozen=True, slots=True)
class Key:
    """An access key. The secret and the token are in no repr, so that no log line and no traceback shows them."""

    access_key_id: str
    account: str
    secret: str = field(repr=False)
    enabled: bool = True
    created_s: int = 0
    expires_s: int | None = None
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Account:
    id: str
    name: str
    quota: Quota = Quota()
    keys: tuple[Key, ...] = ()


class _Mark(NamedTuple):
    """By which a file is known to be the one that was read."""

    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


class Accounts:
    """The accounts of a node. Lookups are one dictionary access; changes go through the file and are seen here at once.

    `path` may name a file that is not there yet: then there is nobody, until there is."""

    def __init__(self, path: str | None, extra: tuple[Account, ...] = ()) -> None:
        self.path = path
        self._extra = extra
        self._mark: _Mark | None = None
        self._accounts: dict[str, Account] = {}
        self._keys: dict[str, Key] = {}
        self._take(())

    @classmethod
    def load(cls, path: str | None, environment: Mapping[str, str] | None = None, account: str = ACCOUNT_DEFAULT) -> Accounts:
        """The accounts of a file, and the key that the environment names (for containers), which belongs to `account`.
        AccountsRefused with the exact problem if either cannot be used."""
        made = cls(path, _from_environment(environment or {}, account))
        if path is not None and (read := _read(path)) is not None:
            made._mark, accounts = read
            made._take(accounts)
        return made

    def find(self, access_key_id: str) -> Key | None:
        """The key of this id, if it is enabled. It may have expired: only who knows the time can tell."""
        return self._keys.get(access_key_id)

    def account(self, id_or_name: str) -> Account | None:
        found = self._accounts.get(id_or_name)
        return found or next((one for one in self._accounts.values() if one.name == id_or_name), None)

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def __len__(self) -> int:
        return len(self._accounts)

    def __repr__(self) -> str:
        return f"Accounts({self.path!r}, {len(self._accounts)} accounts, {len(self._keys)} keys)"

    def reload_if_changed(self) -> bool:
        """Look whether the file is another one than was read, and if so take it; True if it was taken. A stat: call it each second.
        A damaged or missing file changes nothing and is told once."""
        if self.path is None:
            return False
        mark = _mark(self.path)
        if mark == self._mark:
            return False
        self._mark = mark
        try:
            read = _read(self.path)
        except AccountsRefused as error:
            log.error("the accounts stay as they were: %s", error)
            return False
        if read is None:
            log.error("the accounts stay as they were: %s is gone", self.path)
            return False
        self._mark, accounts = read
        self._take(accounts)
        log.info("accounts were read again: %d accounts, %d keys enabled", len(self._accounts), len(self._keys))
        return True

    def create(self, name: str, id: str | None = None) -> Account:
        """A new account, without keys."""
        _hold("name", _NAME, name)
        if id is not None:
            _hold("id", _ID, id)

        def change(accounts: dict[str, Account]) -> Account:
            if any(one.name == name for one in accounts.values()):
                raise BadRequest(f"there is an account named {name} already")
            if id in accounts:
                raise BadRequest(f"there is an account {id} already")
            made = Account(id or _free_id(accounts), name)
            accounts[made.id] = made
            return made

        return self._change(change)

    def add_key(self, id_or_name: str, now_s: int, expires_in_s: int | None = None) -> Key:
        """A new key. One that expires is temporary, as AWS's are: it comes with a session token that must be sent along."""
        if expires_in_s is not None and not 1 <= expires_in_s <= EXPIRES_S_MAX:
            raise BadRequest(f"a key expires after 1 to {EXPIRES_S_MAX} seconds")

        def change(accounts: dict[str, Account]) -> Key:
            account = _named(accounts, id_or_name)
            # Keys that have expired open nothing any more; keeping them would only fill the account.
            kept = tuple(key for key in account.keys if key.expires_s is None or key.expires_s > now_s)
            if len(kept) >= KEYS_PER_ACCOUNT_MAX:
                raise BadRequest(f"account {account.id} has {len(kept)} keys, the most it may have; remove one first")
            made = _new_key(account.id, now_s, expires_in_s)
            accounts[account.id] = replace(account, keys=(*kept, made))
            return made

        return self._change(change)

    def set_enabled(self, access_key_id: str, enabled: bool) -> Key:
        def change(accounts: dict[str, Account]) -> Key:
            account, key = _owner(accounts, access_key_id)
            made = replace(key, enabled=enabled)
            accounts[account.id] = replace(account, keys=tuple(made if one is key else one for one in account.keys))
            return made

        return self._change(change)

    def remove_key(self, access_key_id: str) -> Key:
        def change(accounts: dict[str, Account]) -> Key:
            account, key = _owner(accounts, access_key_id)
            accounts[account.id] = replace(account, keys=tuple(one for one in account.keys if one is not key))
            return key

        return self._change(change)

    def set_quota(self, id_or_name: str, changes: Mapping[str, int | None]) -> Account:
        """Change the quotas that are named; None lifts one."""
        for name, value in changes.items():
            if name not in QUOTA_NAMES or (value is not None and not 0 <= value <= QUOTA_MAX):
                raise BadRequest(f"{name}={value}: a quota is one of {', '.join(QUOTA_NAMES)}, from 0 to {QUOTA_MAX}")

        def change(accounts: dict[str, Account]) -> Account:
            account = _named(accounts, id_or_name)
            made = accounts[account.id] = replace(account, quota=replace(account.quota, **changes))
            return made

        return self._change(change)

    def _change(self, change: Callable[[dict[str, Account]], T]) -> T:
        """Read, change and replace the file while nobody else does."""
        if self.path is None:
            raise BadRequest("there is no file of accounts to change")
        with _locked(os.path.dirname(os.path.abspath(self.path))):
            read = _read(self.path)
            accounts = {one.id: one for one in (read[1] if read is not None else ())}
            result = change(accounts)
            _write(self.path, tuple(accounts.values()))
            self._mark = _mark(self.path)
        self._take(tuple(accounts.values()))
        return result

    def _take(self, accounts: tuple[Account, ...]) -> None:
        self._accounts = {one.id: one for one in accounts}
        for one in self._extra:
            known = self._accounts.get(one.id)
            self._accounts[one.id] = one if known is None else replace(known, keys=known.keys + one.keys)
        self._keys = {key.access_key_id: key for one in self._accounts.values() for key in one.keys if key.enabled}


def path_beside(store: str) -> str | None:
    """Where the accounts of a store lie unless told otherwise: inside its data folder, if it has one."""
    return os.path.join(store.removeprefix("local:"), FILE_NAME) if store.startswith("local:") else None


def _new_key(account: str, now_s: int, expires_in_s: int | None) -> Key:
    # 16 letters of base 32 are 80 bits, as AWS has them; the secret is 240 bits in 40 letters.
    name = base64.b32encode(secrets.token_bytes(10)).decode()
    secret = base64.b64encode(secrets.token_bytes(30)).decode()
    if expires_in_s is None:
        return Key(f"AKIA{name}", account, secret, True, now_s)
    return Key(f"ASIA{name}", account, secret, True, now_s, now_s + expires_in_s, secrets.token_urlsafe(96))


def _free_id(accounts: Mapping[str, Account]) -> str:
    while True:
        # The first digit is never 0: spreadsheets drop leading zeros, and 000000000000 is the account of unsigned calls.
        made = str(10**11 + secrets.randbelow(9 * 10**11))
        if made not in accounts:
            return made


def _named(accounts: Mapping[str, Account], id_or_name: str) -> Account:
    for one in accounts.values():
        if id_or_name in (one.id, one.name):
            return one
    raise BadRequest(f"there is no account {id_or_name}; `dovetail account list` shows them")


def _owner(accounts: Mapping[str, Account], access_key_id: str) -> tuple[Account, Key]:
    for account in accounts.values():
        for key in account.keys:
            if key.access_key_id == access_key_id:
                return account, key
    raise BadRequest(f"there is no access key {access_key_id}; `dovetail account key list` shows them")


def _from_environment(environment: Mapping[str, str], account: str) -> tuple[Account, ...]:
    access_key_id, secret = environment.get(ENVIRONMENT_KEY_ID), environment.get(ENVIRONMENT_SECRET)
    if access_key_id is None and secret is None:
        return ()
    if access_key_id is None or secret is None:
        raise AccountsRefused(f"{ENVIRONMENT_KEY_ID} and {ENVIRONMENT_SECRET} are set together or not at all")
    # The value of a secret is never repeated, also not in the complaint about it.
    if _KEY_ID.fullmatch(access_key_id) is None:
        raise AccountsRefused(f"{ENVIRONMENT_KEY_ID}: {_RULES['key']}")
    if _SECRET.fullmatch(secret) is None:
        raise AccountsRefused(f"{ENVIRONMENT_SECRET}: {_RULES['secret']}")
    _hold("id", _ID, account)
    return (Account(account, "environment", keys=(Key(access_key_id, account, secret),)),)


def _hold(what: str, pattern: re.Pattern[str], value: str) -> None:
    if pattern.fullmatch(value) is None:
        raise BadRequest(f"{value!r}: {_RULES[what]}")


def _mark(path: str) -> _Mark | None:
    try:
        return _mark_of(os.stat(path))
    except OSError:
        return None


def _mark_of(status: os.stat_result) -> _Mark:
    return _Mark(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _read(path: str) -> tuple[_Mark, tuple[Account, ...]] | None:
    """The file and its mark; None where there is none."""
    try:
        # A pipe of that name would make us wait for its other end; without waiting it is seen and refused.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(fd)
            _refuse_unless_private(path, status)
            with open(fd, "rb", closefd=False) as file:
                data = file.read(FILE_BYTES_MAX + 1)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AccountsRefused(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return _mark_of(status), _decode(data)
    except ValueError as error:
        raise AccountsRefused(f"{path}: {error}") from None


def _refuse_unless_private(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise AccountsRefused(f"{path}: is not a file")
    if status.st_mode & 0o077:
        raise AccountsRefused(f"{path}: others can read or write it (mode {status.st_mode & 0o777:o}), and it holds secrets: chmod 600 it")
    if status.st_size > FILE_BYTES_MAX:
        raise AccountsRefused(f"{path}: is larger than {FILE_BYTES_MAX} bytes")


def _decode(data: bytes) -> tuple[Account, ...]:
    """ValueError says what is wrong and where; never with the value, which might be a secret in the wrong place."""
    try:
        tree = json.loads(data.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except (UnicodeDecodeError, RecursionError):
        raise ValueError("is not JSON") from None
    top = _object(tree, "the file", {"format", "accounts"})
    version = top.get("format")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise ValueError(f"format must be {FORMAT_VERSION}; a newer version of Dovetail may have written it")
    accounts: list[Account] = []
    seen: dict[str, str] = {}
    for index, one in enumerate(_list(top.get("accounts"), "accounts")):
        account = _decode_account(one, f"accounts[{index}]")
        for kind, value in [("id", account.id), ("name", account.name), *(("key", key.access_key_id) for key in account.keys)]:
            if (place := f"{kind} {value}") in seen:
                raise ValueError(f"accounts[{index}]: {place} is there twice, see {seen[place]}")
            seen[place] = f"accounts[{index}]"
        accounts.append(account)
    return tuple(accounts)


def _decode_account(value: object, where: str) -> Account:
    tree = _object(value, where, {"id", "name", "quota", "keys"})
    account = _text(tree, "id", where, "id", _ID)
    quota = _object(tree.get("quota", {}), f"{where}.quota", set(QUOTA_NAMES))
    limits = {name: _number(quota, name, f"{where}.quota") for name in quota}
    keys = _list(tree.get("keys", []), f"{where}.keys")
    if len(keys) > KEYS_PER_ACCOUNT_MAX:
        raise ValueError(f"{where}.keys: an account has at most {KEYS_PER_ACCOUNT_MAX} keys")
    made = tuple(_decode_key(one, account, f"{where}.keys[{index}]") for index, one in enumerate(keys))
    return Account(account, _text(tree, "name", where, "name", _NAME), Quota(**limits), made)


def _decode_key(value: object, account: str, where: str) -> Key:
    tree = _object(value, where, {"id", "secret", "enabled", "created_s", "expires_s", "session_token"})
    enabled = tree.get("enabled")
    if not isinstance(enabled, bool):
        raise ValueError(f"{where}.enabled: must be true or false")
    expires_s = _number(tree, "expires_s", where) if "expires_s" in tree else None
    token = _text(tree, "session_token", where, "token", _TOKEN) if "session_token" in tree else None
    return Key(
        _text(tree, "id", where, "key", _KEY_ID),
        account,
        _text(tree, "secret", where, "secret", _SECRET),
        enabled,
        _number(tree, "created_s", where),
        expires_s,
        token,
    )


def _object(value: object, where: str, names: set[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object")
    if unknown := sorted(set(value) - names):
        raise ValueError(f"{where}: there is no field {unknown[0][:40]!r}; there are {', '.join(sorted(names))}")
    return value


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{where} must be a list")
    return value


def _text(tree: Mapping[str, object], name: str, where: str, rule: str, pattern: re.Pattern[str]) -> str:
    value = tree.get(name)
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError(f"{where}.{name}: {_RULES[rule]}")
    return value


def _number(tree: Mapping[str, object], name: str, where: str) -> int:
    value = tree.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= QUOTA_MAX:
        raise ValueError(f"{where}.{name}: must be a whole number from 0 to {QUOTA_MAX}")
    return value


def _encode(accounts: tuple[Account, ...]) -> bytes:
    tree = {"format": FORMAT_VERSION, "accounts": [_encode_account(one) for one in accounts]}
    return (json.dumps(tree, indent=1) + "\n").encode()


def _encode_account(account: Account) -> dict[str, object]:
    quota = {name: value for name in QUOTA_NAMES if (value := getattr(account.quota, name)) is not None}
    return {"id": account.id, "name": account.name, "quota": quota, "keys": [_encode_key(key) for key in account.keys]}


def _encode_key(key: Key) -> dict[str, object]:
    tree: dict[str, object] = {"id": key.access_key_id, "secret": key.secret, "enabled": key.enabled, "created_s": key.created_s}
    if key.expires_s is not None:
        tree["expires_s"] = key.expires_s
    if key.session_token is not None:
        tree["session_token"] = key.session_token
    return tree


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """One change at a time. The folder is locked and not the file: the file is another one after each change."""
    try:
        os.makedirs(folder, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise AccountsRefused(f"{folder}: cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _write(path: str, accounts: tuple[Account, ...]) -> None:
    data = _encode(accounts)
    if len(data) > FILE_BYTES_MAX:
        raise BadRequest(f"{path}: would be larger than {FILE_BYTES_MAX} bytes")
    new = f"{path}.{secrets.token_hex(4)}.new"
    try:
        # Made for its owner alone before the first byte is in it, and never through a file or link that somebody else put there.
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.rename(new, path)
        except BaseException:
            os.unlink(new)
            raise
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise AccountsRefused(f"{path}: cannot be written: {error.strerror}") from None
