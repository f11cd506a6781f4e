"""AWS Signature Version 4, verified: whose key signed these bytes, in which region. Pure: no I/O, no clock; `now_s` is a parameter.

What is signed is a hash of a text that both sides make of the request:

    POST                                    method
    /000000000000/orders                    path: dot segments removed, then percent-encoded once more
    Action=SendMessage&Version=2012-11-05   query: decoded, encoded by RFC 3986, sorted
    host:127.0.0.1:9324                     the signed headers: sorted, blanks trimmed
    x-amz-date:20261116T223000Z
                                            an empty line
    host;x-amz-date                         which headers those were
    e3b0c442…                               SHA-256 of exactly the body that is parsed

The signature comes in the authorization header, or in the query of a presigned URL. Whatever could change the meaning of a request is
signed or the request is refused: host, every x-amz-* header that is present, the whole query, the body. This file knows no queue and no
action; what an account may do is policy.py's business. Secrets and signatures appear in no error and no repr.
"""

from __future__ import annotations

import calendar
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from hmac import compare_digest
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ...errors import BadRequest
from ...service.accounts import Key
from .canonical import SERVICE, TERMINATOR, Draft, Signer, drafted

K = TypeVar("K")
V = TypeVar("V")

SKEW_S = 15 * 60
EXPIRES_S_MAX = 7 * 24 * 3600
AUTHORIZATION_BYTES_MAX = 8 * 1024
SIGNED_HEADERS_MAX = 100
QUERY_PAIRS_MAX = 2_000
LAYOUTS_MAX = 16
DRAFTS_MAX = 32
"""Of one client: it signs a few actions, and a new second makes new ones."""
CACHED_MAX = 4_096
"""Entries of each cache. Only what was verified is remembered, so that strangers cannot fill it."""

STATUSES = {
    "MissingAuthenticationToken": 403,
    "IncompleteSignature": 400,
    "InvalidClientTokenId": 403,
    "ExpiredToken": 403,
    "RequestExpired": 400,
    "SignatureDoesNotMatch": 403,
}
"""Code (as the query protocol says it) → HTTP status."""

JSON_TYPES = {
    "MissingAuthenticationToken": "com.amazon.coral.service#MissingAuthenticationTokenException",
    "IncompleteSignature": "com.amazon.coral.service#IncompleteSignatureException",
    "InvalidClientTokenId": "com.amazon.coral.service#UnrecognizedClientException",
    "ExpiredToken": "com.amazon.coral.service#ExpiredTokenException",
    "RequestExpired": "com.amazon.coral.service#RequestExpired",
    "SignatureDoesNotMatch": "com.amazon.coral.service#InvalidSignatureException",
}
"""Code → `__type` in the JSON protocol: these errors come from in front of SQS and are not in its model."""

_ALGORITHM = b"AWS4-HMAC-SHA256"
_EMPTY_HASH = hashlib.sha256(b"").hexdigest().encode()
_UNSIGNED_PAYLOAD = b"UNSIGNED-PAYLOAD"
_HEADER_NAME = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]{1,256}")
_KEY_ID = re.compile(r"[A-Za-z0-9_]{1,128}")
_REGION = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INSTANT = re.compile(rb"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z", re.ASCII)
_PEEK = re.compile(rb"Credential=([A-Za-z0-9_]{1,128})(?:/|%2[Ff])[0-9]{1,8}(?:/|%2[Ff])([A-Za-z0-9_-]{1,64})(?:/|%2[Ff])")

_MISMATCH = (
    "The request signature we calculated does not match the signature you provided."
    " Check your AWS Secret Access Key and signing method. Consult the service documentation for details."
)
_TOKEN_INVALID = "The security token included in the request is invalid."
_TOKEN_EXPIRED = "The security token included in the request is expired"

SecretOf = Callable[[str], Key | None]
"""The key behind an access key id, if there is one and it is enabled."""


class SignatureRefused(BadRequest):
    """The request is not signed, or not as it must be."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.status = STATUSES[code]


class Signed(NamedTuple):
    """Who signed a request."""

    access_key_id: str
    account: str
    region: str
    presigned: bool


class Scope(NamedTuple):
    """What an unverified request says about its signer."""

    access_key_id: str
    region: str


class Claim(NamedTuple):
    """Everything that the authorization says, besides the signature: the same for a day of one client's requests."""

    access_key_id: str
    day: bytes
    region: str
    scope: bytes
    names: tuple[bytes, ...]
    """The signed headers."""
    named: frozenset[bytes]
    names_line: bytes
    values_of: Callable[[Mapping[bytes, bytes]], bytes | tuple[bytes, ...]]
    """Their values, fetched in one go."""
    template: bytes
    """Their lines, with a place for each value."""
    layouts: set[tuple[bytes, ...]]
    """The headers that requests of this client have, in order, and that were found to be signed as far as they must be."""
    drafts: dict[tuple[Any, ...], Draft]
    """What requests of one action and one second have in common, hashed once: everything but the body and the signature. (Of the 9 µs that
    a signature costs 2 were spent on putting it together again.)"""


class _Stamp(NamedTuple):
    """When a request says it was signed."""

    text: bytes
    at_s: int


class Verifier:
    """Verifies requests; holds nothing but caches, each bounded. One per node: it is not for several threads."""

    def __init__(self, secret_of: SecretOf) -> None:
        self._secret_of = secret_of
        self._claims: dict[bytes, Claim] = {}
        self._signers: dict[tuple[str, bytes, str], Signer] = {}
        self._stamp: _Stamp | None = None

    def verify(self, method: str, path: str, query: bytes, headers: Mapping[bytes, bytes], body: bytes, now_s: float) -> Signed:
        """Who signed this request; SignatureRefused if nobody did, or not properly.

        `path` and `query` are as they were sent, still encoded. Header names are lower case; a header that came twice is one, joined
        with a comma, as the edge does it.
        """
        authorization = headers.get(b"authorization")
        if authorization is None:
            return self._presigned(method, path, query, headers, body, now_s)
        if query and b"&X-Amz-Algorithm=" in b"&" + query:
            raise _incomplete("Only one auth mechanism allowed: the X-Amz-Algorithm query parameter or the Authorization header.")
        head, _, signature = authorization.partition(b", Signature=")
        claim = known = self._claims.get(head)
        last = signature
        if claim is None:
            claim, signature = _read_authorization(authorization, headers)
        stamp = self._stamp_of(claim, headers)
        if stamp.text[:8] != claim.day:
            raise _wrong_day(claim, stamp)
        if not -SKEW_S <= now_s - stamp.at_s <= SKEW_S:
            raise _out_of_time(stamp, now_s)
        key = self._key(claim, headers.get(b"x-amz-security-token"), now_s)
        body_hash = hashlib.sha256(body).hexdigest().encode() if body else _EMPTY_HASH
        said_hash = headers.get(b"x-amz-content-sha256")
        if said_hash is not None and said_hash != body_hash:
            raise SignatureRefused("SignatureDoesNotMatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
        canonical_query = _encoded(_pairs(query)) if query else b""
        self._compare(method, path, canonical_query, headers, body_hash, claim, stamp, key, signature)
        # Fields may come in another order and with other blanks. That is read each time; only the usual order is remembered.
        if known is None and signature == last:
            _remember(self._claims, head, claim)
        return Signed(claim.access_key_id, key.account, claim.region, False)

    def _presigned(self, method: str, path: str, query: bytes, headers: Mapping[bytes, bytes], body: bytes, now_s: float) -> Signed:
        if b"X-Amz-" not in query:
            raise SignatureRefused("MissingAuthenticationToken", "Request is missing Authentication Token")
        pairs = _pairs(query)
        fields = _presigned_fields(pairs)
        claim = _claim(fields[b"X-Amz-Credential"], fields[b"X-Amz-SignedHeaders"])
        stamp = _read_stamp(fields[b"X-Amz-Date"])
        if stamp.text[:8] != claim.day:
            raise _wrong_day(claim, stamp)
        expires_s = _expires(fields[b"X-Amz-Expires"])
        if now_s < stamp.at_s - SKEW_S:
            raise _out_of_time(stamp, now_s)
        if now_s > stamp.at_s + expires_s:
            raise SignatureRefused("RequestExpired", "Request has expired.")
        key = self._key(claim, fields.get(b"X-Amz-Security-Token"), now_s)
        body_hash = hashlib.sha256(body).hexdigest().encode()
        said_hash = headers.get(b"x-amz-content-sha256")
        if said_hash == _UNSIGNED_PAYLOAD:
            body_hash = said_hash  # Whoever made the URL left the body to its user; the header itself must be signed like any x-amz-*.
        elif said_hash is not None and said_hash != body_hash:
            raise SignatureRefused("SignatureDoesNotMatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
        canonical_query = _encoded([pair for pair in pairs if pair[0] != b"X-Amz-Signature"])
        self._compare(method, path, canonical_query, headers, body_hash, claim, stamp, key, fields[b"X-Amz-Signature"])
        return Signed(claim.access_key_id, key.account, claim.region, True)

    def _stamp_of(self, claim: Claim, headers: Mapping[bytes, bytes]) -> _Stamp:
        text = headers.get(b"x-amz-date")
        if text is None:
            # A date header is of no use unless it is signed; x-amz-date always is, like every x-amz-*.
            if b"date" not in claim.named:
                raise _must_be_signed(b"Date")
            return _read_stamp(headers.get(b"date", b""))
        stamp = self._stamp
        # Most requests of one second carry the same text.
        if stamp is None or text != stamp.text:
            stamp = self._stamp = _read_stamp(text)
        return stamp

    def _key(self, claim: Claim, token: bytes | None, now_s: float) -> Key:
        key = self._secret_of(claim.access_key_id)
        if key is None:
            raise SignatureRefused("InvalidClientTokenId", _TOKEN_INVALID)
        if token is not None or key.session_token is not None:
            wanted = (key.session_token or "").encode()
            if not wanted or token is None or not compare_digest(wanted, token):
                raise SignatureRefused("InvalidClientTokenId", _TOKEN_INVALID)
        if key.expires_s is not None and now_s >= key.expires_s:
            raise SignatureRefused("ExpiredToken", _TOKEN_EXPIRED)
        return key

    def _compare(
        self,
        method: str,
        path: str,
        canonical_query: bytes,
        headers: Mapping[bytes, bytes],
        body_hash: bytes,
        claim: Claim,
        stamp: _Stamp,
        key: Key,
        signature: bytes,
    ) -> None:
        """The end of both forms: make the text, sign it, compare."""
        layout = tuple(headers)
        known_layout = layout in claim.layouts
        if not known_layout:
            _check_layout(claim, headers)
        values = claim.values_of(headers)
        # By the secret and not by its id: a secret that was replaced under the same id is another signer at once.
        signer = self._signers.get((key.secret, claim.day, claim.region))
        place = (signer, method, path, canonical_query, stamp.text, values)
        draft = known = claim.drafts.get(place)
        if draft is None:
            made = signer or Signer(key.secret, claim.day, claim.region)
            draft = drafted(made, method, path, canonical_query, headers, values, claim, stamp.text)
        canonical = draft.canonical.copy()
        canonical.update(body_hash)
        if not compare_digest(draft.signer.sign(draft.text, canonical.hexdigest().encode()), signature):
            raise SignatureRefused("SignatureDoesNotMatch", _MISMATCH)
        if signer is None:
            _remember(self._signers, (key.secret, claim.day, claim.region), draft.signer)
        elif known is None:
            if len(claim.drafts) >= DRAFTS_MAX:
                claim.drafts.clear()
            claim.drafts[place] = draft
        if not known_layout and len(claim.layouts) < LAYOUTS_MAX:
            claim.layouts.add(layout)


def peek_scope(query: bytes, headers: Mapping[bytes, bytes]) -> Scope | None:
    """The access key id and region that a request names, without verifying anything: for nodes that accept every key."""
    authorization = headers.get(b"authorization")
    found = _PEEK.search(query if authorization is None else authorization[:AUTHORIZATION_BYTES_MAX])
    return None if found is None else Scope(found[1].decode(), found[2].decode())


def _read_authorization(authorization: bytes, headers: Mapping[bytes, bytes]) -> tuple[Claim, bytes]:
    """The claim and the signature of an authorization header, its fields in whatever order they came."""
    if len(authorization) > AUTHORIZATION_BYTES_MAX:
        raise _incomplete(f"The Authorization header is longer than {AUTHORIZATION_BYTES_MAX} bytes.")
    algorithm, _, rest = authorization.strip().partition(b" ")
    if algorithm != _ALGORITHM:
        if not algorithm.startswith(b"AWS"):
            # Basic and Bearer are what a proxy or a browser adds; to SigV4 they are nothing at all.
            raise SignatureRefused("MissingAuthenticationToken", "Request is missing Authentication Token")
        raise _incomplete(f"Unsupported AWS 'algorithm': '{_shown(algorithm)}' (only AWS4-HMAC-SHA256 for now).")
    fields: dict[bytes, bytes] = {}
    for part in re.split(rb"[,\s]+", rest.strip(b", \t")):
        name, found, value = part.partition(b"=")
        if part and not found:
            raise _incomplete(f"'{_shown(part)}' not a valid key=value pair (missing equal-sign) in Authorization header.")
        if name in fields:
            raise _incomplete(f"Authorization header has two '{_shown(name)}' parameters.")
        fields[name] = value
    missing = [name for name in ("Credential", "Signature", "SignedHeaders") if name.encode() not in fields]
    texts = [f"Authorization header requires '{name}' parameter." for name in missing]
    if b"x-amz-date" not in headers and b"date" not in headers:
        texts.append("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
    if texts:
        # AWS repeats the header here. We do not: it may hold what somebody took for a password.
        raise _incomplete(" ".join(texts))
    return _claim(fields[b"Credential"], fields[b"SignedHeaders"]), fields[b"Signature"]


def _check_layout(claim: Claim, headers: Mapping[bytes, bytes]) -> None:
    for name in headers:
        if name[:6] == b"x-amz-" and name not in claim.named:
            raise _must_be_signed(name)
    for name in claim.names:
        if name not in headers:
            raise SignatureRefused("SignatureDoesNotMatch", f"The signed header '{_shown(name)}' is not in the request.")


def _pairs(query: bytes) -> list[tuple[bytes, bytes]]:
    """Decoded as a form is: a plus is a blank. So what is verified is what is parsed, however it was written."""
    parts = [part for part in query.split(b"&") if part]
    if len(parts) > QUERY_PAIRS_MAX:
        raise _incomplete(f"The query has more than {QUERY_PAIRS_MAX} parameters.")
    pairs = []
    for part in parts:
        name, _, value = part.replace(b"+", b" ").partition(b"=")
        pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return pairs


def _encoded(pairs: list[tuple[bytes, bytes]]) -> bytes:
    made = sorted((quote_from_bytes(name, safe="-_.~"), quote_from_bytes(value, safe="-_.~")) for name, value in pairs)
    return "&".join(f"{name}={value}" for name, value in made).encode()


def _presigned_fields(pairs: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name[:6] == b"X-Amz-":
            if name in fields:
                raise _incomplete(f"AWS query-string parameters must include '{_shown(name)}' once.")
            fields[name] = value
    wanted = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Date", "X-Amz-Expires")
    missing = [name for name in wanted if name.encode() not in fields]
    if missing:
        texts = [f"AWS query-string parameters must include '{name}'." for name in missing]
        raise _incomplete(" ".join([*texts, "Re-examine the query-string parameters."]))
    if fields[b"X-Amz-Algorithm"] != _ALGORITHM:
        raise _incomplete(f"Unsupported AWS 'algorithm': '{_shown(fields[b'X-Amz-Algorithm'])}' (only AWS4-HMAC-SHA256 for now).")
    return fields


def _expires(text: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,6}", text) or not 1 <= int(text) <= EXPIRES_S_MAX:
        raise _incomplete(f"X-Amz-Expires must be a number of seconds between 1 and {EXPIRES_S_MAX}.")
    return int(text)


def _claim(credential: bytes, signed_headers: bytes) -> Claim:
    parts = credential.decode("latin-1").split("/")
    if len(parts) != 5:
        raise _incomplete(
            f"Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term, got '{_shown(credential)}'"
        )
    access_key_id, day, region, service, terminator = parts
    names = tuple(signed_headers.split(b";"))
    if len(names) > SIGNED_HEADERS_MAX or any(_HEADER_NAME.fullmatch(name) is None for name in names):
        raise _incomplete("SignedHeaders must be the names of headers, in lower case, separated by semicolons.")
    if any(before >= after for before, after in pairwise(names)):
        raise _incomplete("SignedHeaders must be sorted and name each header once.")
    if b"host" not in names:
        raise _must_be_signed(b"Host' or ':authority")
    texts = []
    if _REGION.fullmatch(region) is None:
        texts.append(f"Credential should be scoped to a valid region, not '{_shown(region.encode())}'.")
    if service != SERVICE:
        texts.append(f"Credential should be scoped to correct service: '{SERVICE}'.")
    if terminator != TERMINATOR:
        texts.append(f"Credential should be scoped with a valid terminator: '{TERMINATOR}', not '{_shown(terminator.encode())}'.")
    if texts:
        raise SignatureRefused("SignatureDoesNotMatch", " ".join(texts))
    if _KEY_ID.fullmatch(access_key_id) is None:
        raise SignatureRefused("InvalidClientTokenId", _TOKEN_INVALID)
    scope = f"{day}/{region}/{service}/{terminator}".encode("latin-1")
    template = b"".join(name.replace(b"%", b"%%") + b":%b\n" for name in names)
    return Claim(
        access_key_id,
        day.encode("latin-1"),
        region,
        scope,
        names,
        frozenset(names),
        signed_headers,
        itemgetter(*names),
        template,
        set(),
        {},
    )


_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_HTTP_DATE = re.compile(rb"[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) (?:GMT|[+-]0000)", re.ASCII)


def _read_stamp(text: bytes) -> _Stamp:
    """`20261116T223000Z`, or the HTTP form that a Date header may have."""
    found = _HTTP_DATE.fullmatch(text)
    if found is not None and found[2] in _MONTHS:
        month = b"%02d" % (_MONTHS.index(found[2]) + 1)
        text = b"%b%b%bT%b%b%bZ" % (found[3], month, found[1], found[4], found[5], found[6])
    match = _INSTANT.fullmatch(text)
    if match is not None:
        year, month_number, day, hour, minute, second = map(int, match.groups())
        real_day = year >= 1970 and 1 <= month_number <= 12 and 1 <= day <= calendar.monthrange(year, month_number)[1]
        if real_day and hour < 24 and minute < 60 and second < 61:
            return _Stamp(text, calendar.timegm((year, month_number, day, hour, minute, second)))
    raise _incomplete(f"Date must be in ISO-8601 'basic format'. Got '{_shown(text)}'. See http://en.wikipedia.org/wiki/ISO_8601")


def _text_of(at_s: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))


def _out_of_time(stamp: _Stamp, now_s: float) -> SignatureRefused:
    said, now, minutes = stamp.text.decode(), _text_of(now_s), SKEW_S // 60
    if stamp.at_s < now_s:
        text = f"Signature expired: {said} is now earlier than {_text_of(now_s - SKEW_S)} ({now} - {minutes} min.)"
    else:
        text = f"Signature not yet current: {said} is still later than {_text_of(now_s + SKEW_S)} ({now} + {minutes} min.)"
    return SignatureRefused("SignatureDoesNotMatch", text)


def _wrong_day(claim: Claim, stamp: _Stamp) -> SignatureRefused:
    said, stamped = _shown(claim.day), stamp.text.decode()
    return SignatureRefused(
        "SignatureDoesNotMatch",
        "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP:"
        f" '{said}' != '{stamped[:8]}', from '{stamped}'.",
    )


def _must_be_signed(name: bytes) -> SignatureRefused:
    return SignatureRefused("SignatureDoesNotMatch", f"'{_shown(name)}' must be a 'SignedHeader' in the AWS Authorization.")


def _incomplete(text: str) -> SignatureRefused:
    return SignatureRefused("IncompleteSignature", text)


def _shown(text: bytes) -> str:
    """A piece of the request inside an error: short, and in characters that every protocol can carry."""
    kept = text[:100].decode("ascii", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in kept)


def _remember(cache: dict[K, V], key: K, value: V) -> None:
    if len(cache) >= CACHED_MAX:
        cache.clear()
    cache[key] = value
