"""Promises of signature verification: what botocore signs is accepted, whatever it is; whatever was changed afterwards is refused; and
nothing that a stranger sends brings anything but a refusal with AWS's own words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import botocore.auth
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.doors.sqs import sigv4
from dovetail.doors.sqs.canonical import normal_path
from dovetail.doors.sqs.sigv4 import EXPIRES_S_MAX, JSON_TYPES, STATUSES, Scope, SignatureRefused, Signed, Verifier, peek_scope
from dovetail.service.accounts import Key

pytestmark = pytest.mark.slow

NOW_S = 1_794_868_200  # 2026-11-16T22:30:00Z
PLAIN = Key("AKIAPLAINPLAINPLAIN1", "123456789012", "plain/secret+plain/secret+plain/secret+1")
TEMPORARY = Key(
    "ASIATEMPORARYTEMPOR1", "210987654321", "temporary/secret", expires_s=NOW_S + 3600, session_token="token+/=with.odd~letters"
)
KEYS = {key.access_key_id: key for key in (PLAIN, TEMPORARY)}
ODD = "abcXYZ019-_.~ /?:@!$&'()*+,;=%\"<>[]{}|\\^`#äß漢🙂\t"


@dataclass(frozen=True)
class Sent:
    """A request as it arrives."""

    method: str
    path: str
    query: bytes
    headers: dict[bytes, bytes]
    body: bytes

    def with_header(self, name: bytes, value: bytes | None) -> Sent:
        kept = {one: its for one, its in self.headers.items() if one != name}
        return replace(self, headers=kept if value is None else kept | {name: value})

    def verify(self, verifier: Verifier | None = None, now_s: float = NOW_S) -> Signed:
        return (verifier or Verifier(KEYS.get)).verify(self.method, self.path, self.query, self.headers, self.body, now_s)


@pytest.fixture(autouse=True)
def signing_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def at(at_s: int) -> None:
        monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: datetime.fromtimestamp(at_s, UTC))

    at(NOW_S)
    return at


def sign(
    method: str = "POST",
    url: str = "http://127.0.0.1:9324/",
    body: bytes = b'{"QueueName":"orders"}',
    key: Key = PLAIN,
    region: str = "us-east-1",
    service: str = "sqs",
    headers: dict[str, str] | None = None,
    params: dict[str, str] | None = None,
    presigned_s: int | None = None,
) -> Sent:
    given_headers = {"X-Amz-Target": "AmazonSQS.CreateQueue", "Content-Type": "application/x-amz-json-1.0"} if headers is None else headers
    request = AWSRequest(method, url, headers=dict(given_headers), data=body, params=params or {})
    credentials = Credentials(key.access_key_id, key.secret, key.session_token)
    if presigned_s is None:
        SigV4Auth(credentials, service, region).add_auth(request)
    else:
        SigV4QueryAuth(credentials, service, region, presigned_s).add_auth(request)
    prepared = request.prepare()
    parts = urlsplit(prepared.url)
    sent = {b"host": parts.netloc.encode(), b"user-agent": b"Boto3/1", b"accept-encoding": b"identity"}
    for name, value in prepared.headers.items():
        # Blanks around a value are not part of it on the wire.
        sent[name.lower().encode()] = (value if isinstance(value, bytes) else value.encode()).strip()
    wire_body = prepared.body or b""
    return Sent(method, parts.path, parts.query.encode(), sent, wire_body.encode() if isinstance(wire_body, str) else wire_body)


def presign(**given: object) -> Sent:
    made: dict[str, object] = {"method": "GET", "body": b"", "headers": {}, "params": {"Action": "ListQueues"}, "presigned_s": 600}
    return sign(**(made | given))  # type: ignore[arg-type]


def refusal(sent: Sent, verifier: Verifier | None = None, now_s: float = NOW_S) -> tuple[str, str]:
    with pytest.raises(SignatureRefused) as caught:
        sent.verify(verifier, now_s)
    assert caught.value.status == STATUSES[caught.value.code]
    assert caught.value.code in JSON_TYPES
    return caught.value.code, str(caught.value)


def code(sent: Sent, verifier: Verifier | None = None, now_s: float = NOW_S) -> str:
    return refusal(sent, verifier, now_s)[0]


def requests(seed: int, count: int) -> Iterator[Sent]:
    """Requests as no client sends them: odd characters wherever they may stand."""
    chance = random.Random(seed)

    def text(most: int) -> str:
        return "".join(chance.choice(ODD) for _ in range(chance.randint(0, most)))

    for _ in range(count):
        path = "/" + "/".join(quote(text(8), safe="~") or chance.choice(["", ".", "..", "q"]) for _ in range(chance.randint(0, 4)))
        body = chance.choice([b"", b"x", chance.randbytes(chance.randint(1, 300)), b"z" * chance.choice([1_000, 100_000])])
        headers = {f"X-Amz-Meta-{n}": f"{text(5).encode().hex()}  two  blanks " for n in range(chance.randint(0, 3))}
        if chance.random() < 0.5:
            headers["Content-Type"] = "application/x-www-form-urlencoded; charset=utf-8"
        presigned = chance.random() < 0.4
        yield sign(
            method=chance.choice(["GET", "POST"]),
            url=f"http://{chance.choice(['127.0.0.1:9324', 'queue.example', '[::1]:9324'])}{path}",
            body=b"" if presigned else body,
            key=chance.choice([PLAIN, TEMPORARY]),
            region=chance.choice(["us-east-1", "eu-central-1", "made-up-7"]),
            headers=headers,
            params={f"{text(6)}{n}": text(12) for n in range(chance.randint(0, 4))},
            presigned_s=chance.randint(1, EXPIRES_S_MAX) if presigned else None,
        )


def signed_names(sent: Sent) -> list[bytes]:
    authorization = sent.headers.get(b"authorization")
    if authorization is not None:
        return authorization.partition(b"SignedHeaders=")[2].partition(b",")[0].split(b";")
    return sent.query.partition(b"X-Amz-SignedHeaders=")[2].partition(b"&")[0].replace(b"%3B", b";").split(b";")


def twins(sent: Sent) -> Iterator[tuple[str, Sent]]:
    """The request with one signed part changed, each part in turn."""
    yield "method", replace(sent, method="PUT")
    yield "path", replace(sent, path=sent.path.rstrip("/") + "/x")
    yield "query", replace(sent, query=sent.query + (b"&" if sent.query else b"") + b"x=1")
    yield "body", replace(sent, body=sent.body + b" ")
    for name in signed_names(sent):
        yield f"header {name!r}", sent.with_header(name, sent.headers[name] + b"1")
        yield f"no header {name!r}", sent.with_header(name, None)
    yield "an x-amz header more", sent.with_header(b"x-amz-more", b"1")
    if (authorization := sent.headers.get(b"authorization")) is not None:
        flipped = b"0" if authorization[-1:] != b"0" else b"1"
        yield "signature", sent.with_header(b"authorization", authorization[:-1] + flipped)
        yield "region", sent.with_header(b"authorization", authorization.replace(b"/sqs/", b"x/sqs/"))
        yield "no signature", sent.with_header(b"authorization", authorization.partition(b", Signature=")[0])
    else:
        for name in (b"Algorithm", b"Credential", b"Date", b"Expires", b"SignedHeaders", b"Signature"):
            whole = next(part for part in sent.query.split(b"&") if part.startswith(b"X-Amz-" + name))
            yield f"no {name!r}", replace(sent, query=sent.query.replace(whole, b""))
            yield f"other {name!r}", replace(sent, query=sent.query.replace(whole, whole + b"1"))
            yield f"two {name!r}", replace(sent, query=sent.query + b"&" + whole)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_botocore_signs_is_accepted_and_whatever_is_changed_afterwards_is_refused(seed: int) -> None:
    verifier = Verifier(KEYS.get)
    for sent in requests(seed, 250):
        signed = sent.verify(verifier)
        assert signed.account == KEYS[signed.access_key_id].account
        assert (signed.presigned, signed.region in ("us-east-1", "eu-central-1", "made-up-7")) == (
            b"authorization" not in sent.headers,
            True,
        )
        assert sent.verify(verifier) == signed, "from the caches"
        for part, twin in twins(sent):
            with pytest.raises(SignatureRefused):
                pytest.fail(f"{part} of {sent} could be changed: {twin.verify(verifier)}")


def test_the_answer_names_key_account_and_region() -> None:
    assert sign(region="eu-west-3").verify() == Signed(PLAIN.access_key_id, "123456789012", "eu-west-3", False)
    assert presign(key=TEMPORARY).verify() == Signed(TEMPORARY.access_key_id, "210987654321", "us-east-1", True)


def test_nobody_signed() -> None:
    missing = ("MissingAuthenticationToken", "Request is missing Authentication Token")
    assert refusal(sign().with_header(b"authorization", None)) == missing
    assert refusal(sign().with_header(b"authorization", b"Basic dXNlcjpwYXNzd29yZA==")) == missing


def test_an_unknown_key_is_told_apart_from_a_wrong_secret_as_aws_does() -> None:
    assert refusal(sign(key=Key("AKIANOBODY", "1" * 12, "secret-secret"))) == (
        "InvalidClientTokenId",
        "The security token included in the request is invalid.",
    )
    assert refusal(sign(key=replace(PLAIN, secret="another/secret"))) == (
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided."
        " Check your AWS Secret Access Key and signing method. Consult the service documentation for details.",
    )


def test_a_key_that_was_taken_away_or_replaced_is_refused_at_once() -> None:
    keys = dict(KEYS)
    verifier = Verifier(keys.get)
    sent = sign()
    sent.verify(verifier)
    keys[PLAIN.access_key_id] = replace(PLAIN, secret="rotated/secret")
    assert code(sent, verifier) == "SignatureDoesNotMatch"
    assert sign(key=keys[PLAIN.access_key_id]).verify(verifier).account == PLAIN.account
    del keys[PLAIN.access_key_id]
    assert code(sent, verifier) == "InvalidClientTokenId"


@pytest.mark.parametrize("make", [sign, presign])
def test_a_temporary_key_needs_its_token_and_others_may_have_none(make: Callable[..., Sent]) -> None:
    for token in (None, "other-token", ""):
        assert code(make(key=replace(TEMPORARY, session_token=token))) == "InvalidClientTokenId"
    assert code(make(key=replace(PLAIN, session_token="made-up-token"))) == "InvalidClientTokenId"


def test_a_temporary_key_ends(signing_time: Callable[[int], None]) -> None:
    signing_time(NOW_S + 3599)
    sign(key=TEMPORARY).verify(now_s=NOW_S + 3599)
    assert refusal(sign(key=TEMPORARY), now_s=NOW_S + 3600) == ("ExpiredToken", "The security token included in the request is expired")


def test_a_token_that_is_sent_must_be_signed() -> None:
    authorization = b"x-amz-security-token"
    sent = sign(key=PLAIN).with_header(authorization, b"token")
    assert refusal(sent, Verifier({PLAIN.access_key_id: replace(PLAIN, session_token="token")}.get)) == (
        "SignatureDoesNotMatch",
        "'x-amz-security-token' must be a 'SignedHeader' in the AWS Authorization.",
    )


def test_a_signature_holds_for_fifteen_minutes_either_way() -> None:
    sent = sign()
    for now_s in (NOW_S - 900, NOW_S + 900):
        sent.verify(now_s=now_s)
    assert refusal(sent, now_s=NOW_S + 901) == (
        "SignatureDoesNotMatch",
        "Signature expired: 20261116T223000Z is now earlier than 20261116T223001Z (20261116T224501Z - 15 min.)",
    )
    assert refusal(sent, now_s=NOW_S - 901) == (
        "SignatureDoesNotMatch",
        "Signature not yet current: 20261116T223000Z is still later than 20261116T222959Z (20261116T221459Z + 15 min.)",
    )


def test_a_presigned_url_holds_as_long_as_it_says() -> None:
    sent = presign(presigned_s=60)
    for now_s in (NOW_S - 900, NOW_S + 60):
        sent.verify(now_s=now_s)
    assert refusal(sent, now_s=NOW_S + 61) == ("RequestExpired", "Request has expired.")
    assert code(sent, now_s=NOW_S - 901) == "SignatureDoesNotMatch"


@pytest.mark.parametrize("expires", [0, -1, EXPIRES_S_MAX + 1, 10**30, "", "1e3", " 5", "٣"])
def test_a_presigned_url_holds_for_a_second_to_a_week(expires: int | str) -> None:
    presign(presigned_s=1).verify()
    presign(presigned_s=EXPIRES_S_MAX).verify()
    assert refusal(presign(presigned_s=expires)) == (
        "IncompleteSignature",
        "X-Amz-Expires must be a number of seconds between 1 and 604800.",
    )


def test_the_scope_must_be_ours() -> None:
    assert refusal(sign(service="sns")) == ("SignatureDoesNotMatch", "Credential should be scoped to correct service: 'sqs'.")
    sent = sign()
    for old, new, text in (
        (b"aws4_request", b"aws5_request", "Credential should be scoped with a valid terminator: 'aws4_request', not 'aws5_request'."),
        (b"/us-east-1/", b"//", "Credential should be scoped to a valid region, not ''."),
        (
            b"/20261116/",
            b"/20261115/",
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP:"
            " '20261115' != '20261116', from '20261116T223000Z'.",
        ),
    ):
        assert refusal(sent.with_header(b"authorization", sent.headers[b"authorization"].replace(old, new))) == (
            "SignatureDoesNotMatch",
            text,
        )


def test_what_is_missing_from_an_authorization_is_named_and_its_value_is_not_repeated() -> None:
    assert refusal(sign().with_header(b"authorization", b"AWS4-HMAC-SHA256 hidden=hunter2").with_header(b"x-amz-date", None)) == (
        "IncompleteSignature",
        "Authorization header requires 'Credential' parameter. Authorization header requires 'Signature' parameter."
        " Authorization header requires 'SignedHeaders' parameter."
        " Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.",
    )
    assert refusal(replace(presign(), query=b"X-Amz-Algorithm=AWS4-HMAC-SHA256")) == (
        "IncompleteSignature",
        "AWS query-string parameters must include 'X-Amz-Credential'. AWS query-string parameters must include 'X-Amz-Signature'."
        " AWS query-string parameters must include 'X-Amz-SignedHeaders'. AWS query-string parameters must include 'X-Amz-Date'."
        " AWS query-string parameters must include 'X-Amz-Expires'. Re-examine the query-string parameters.",
    )


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (b"x-amz-date", ("SignatureDoesNotMatch", "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.")),
        (b"x-amz-date;host", ("IncompleteSignature", "SignedHeaders must be sorted and name each header once.")),
        (b"host;host;x-amz-date", ("IncompleteSignature", "SignedHeaders must be sorted and name each header once.")),
        (
            b"Host;X-Amz-Date",
            ("IncompleteSignature", "SignedHeaders must be the names of headers, in lower case, separated by semicolons."),
        ),
        (b"", ("IncompleteSignature", "SignedHeaders must be the names of headers, in lower case, separated by semicolons.")),
        (b"host", ("SignatureDoesNotMatch", "'x-amz-date' must be a 'SignedHeader' in the AWS Authorization.")),
        (b"host;nowhere;x-amz-date", ("SignatureDoesNotMatch", "The signed header 'nowhere' is not in the request.")),
    ],
)
def test_signed_headers_follow_their_rules(names: bytes, told: tuple[str, str]) -> None:
    sent = sign(headers={})
    assert b"SignedHeaders=host;x-amz-date," in sent.headers[b"authorization"]
    assert refusal(sent.with_header(b"authorization", sent.headers[b"authorization"].replace(b"host;x-amz-date", names))) == told


def test_without_the_rule_of_signed_headers_an_added_header_would_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = sign(headers={}).with_header(b"x-amz-target", b"AmazonSQS.DeleteQueue")
    assert code(sent) == "SignatureDoesNotMatch"
    monkeypatch.setattr(sigv4, "_check_layout", lambda *_: None)
    sent.verify()


def test_without_the_comparison_everything_would_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = replace(sign(), body=b"other")
    assert code(sent) == "SignatureDoesNotMatch"
    monkeypatch.setattr(sigv4, "compare_digest", lambda *_: True)
    sent.verify()


def test_a_header_that_is_added_to_a_known_client_is_still_looked_at() -> None:
    verifier = Verifier(KEYS.get)
    sent = sign(headers={})
    sent.verify(verifier)
    assert code(sent.with_header(b"x-amz-target", b"AmazonSQS.DeleteQueue"), verifier) == "SignatureDoesNotMatch"


def test_an_unsigned_content_type_is_accepted() -> None:
    sign(headers={}).with_header(b"content-type", b"application/x-amz-json-1.0").verify()


def test_a_said_body_hash_must_be_that_of_the_body() -> None:
    sent = sign(headers={"X-Amz-Content-SHA256": "0" * 64})
    assert refusal(sent) == ("SignatureDoesNotMatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
    assert code(sign(headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})) == "SignatureDoesNotMatch"
    assert code(presign(headers={"X-Amz-Content-SHA256": "0" * 64})) == "SignatureDoesNotMatch"


def test_only_a_presigned_url_can_leave_the_body_open() -> None:
    sent = presign(method="POST", headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})
    for body in (b"", b"anything"):
        replace(sent, body=body).verify()
    assert code(replace(presign(method="POST"), body=b"anything")) == "SignatureDoesNotMatch"


def test_fields_may_come_in_any_order_and_with_any_blanks() -> None:
    verifier = Verifier(KEYS.get)
    sent = sign()
    scheme, _, rest = sent.headers[b"authorization"].partition(b" ")
    credential, names, signature = rest.split(b", ")
    for fields in (
        b",".join([credential, names, signature]),
        b" ".join([signature, credential, names]),
        b",  ".join([names, signature, credential]),
        b", ".join([credential, names, signature]),
    ):
        for _ in range(2):
            sent.with_header(b"authorization", scheme + b" " + fields).verify(verifier)
    assert (
        code(sent.with_header(b"authorization", sent.headers[b"authorization"] + b", SignedHeaders=host"), verifier)
        == "SignatureDoesNotMatch"
    )
    assert code(sent.with_header(b"authorization", sent.headers[b"authorization"] + b", SignedHeaders=host")) == "IncompleteSignature"


def test_a_signed_date_header_stands_for_the_x_amz_date() -> None:
    sent = sign(headers={"Date": "now"})
    assert sent.headers[b"date"] == b"Mon, 16 Nov 2026 22:30:00 -0000" and b"x-amz-date" not in sent.headers
    sent.verify()
    assert code(sent.with_header(b"date", b"Mon, 16 Nov 2026 22:30:01 GMT")) == "SignatureDoesNotMatch"
    assert code(sent.with_header(b"date", b"yesterday")) == "IncompleteSignature"
    unsigned = sign().with_header(b"x-amz-date", None).with_header(b"date", b"Mon, 16 Nov 2026 22:30:00 GMT")
    assert refusal(unsigned) == ("SignatureDoesNotMatch", "'Date' must be a 'SignedHeader' in the AWS Authorization.")


@pytest.mark.parametrize(
    "text", [b"", b"20261316T000000Z", b"20260230T000000Z", b"20261116T240000Z", b"20261116", b"00000101T000000Z", b"\xff"]
)
def test_a_date_that_is_none_is_refused(text: bytes) -> None:
    got = sign().with_header(b"x-amz-date", text)
    assert code(got) == "IncompleteSignature"


def test_both_forms_at_once_are_refused_also_for_a_known_client() -> None:
    verifier = Verifier(KEYS.get)
    sent = sign()
    sent.verify(verifier)
    for query in (presign().query, b"X-Amz-Algorithm="):
        assert code(replace(sent, query=query), verifier) == "IncompleteSignature"
    sign(params={"MessageBody": "&X-Amz-Algorithm=AWS4-HMAC-SHA256"}).verify(verifier)


def test_blanks_and_encodings_that_mean_the_same_have_the_same_signature() -> None:
    sent = sign(headers={"X-Amz-Meta": "a b"}, params={"a b": "c/d", "e": "~"})
    assert sent.query == b"a+b=c%2Fd&e=~"
    for query in (b"a%20b=c/d&e=%7E", b"e=~&a+b=c%2fd", b"&e=~&&a+b=c%2Fd&"):
        replace(sent, query=query).verify()
    for value in (b"a  b", b" a b ", b"a\tb"):
        sent.with_header(b"x-amz-meta", value).verify()


@pytest.mark.parametrize(
    ("path", "normal"),
    [("", "/"), ("/", "/"), ("//", "/"), ("/a/../b", "/b"), ("/../..", "/"), ("/a/./b/", "/a/b/"), ("/a//b", "/a/b"), ("/a/..", "/")],
)
def test_paths_that_share_a_signature_have_one_normal_form(path: str, normal: str) -> None:
    assert normal_path(path) == normal
    replace(sign(url=f"http://h{normal}"), path=path).verify()


def test_scopes_can_be_read_without_verifying() -> None:
    sent, url = sign(region="eu-west-1", key=Key("test", "1" * 12, "whatever")), presign(region="eu-west-2")
    assert peek_scope(sent.query, sent.headers) == Scope("test", "eu-west-1")
    assert peek_scope(url.query, url.headers) == Scope(PLAIN.access_key_id, "eu-west-2")
    assert peek_scope(b"Action=ListQueues", {b"host": b"h"}) is None
    assert peek_scope(b"", {b"authorization": b"AWS4-HMAC-SHA256 Credential=a/b"}) is None


def test_caches_are_bounded_and_hold_only_what_was_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sigv4, "CACHED_MAX", 8)
    monkeypatch.setattr(sigv4, "LAYOUTS_MAX", 3)
    monkeypatch.setattr(sigv4, "DRAFTS_MAX", 3)
    verifier = Verifier(KEYS.get)
    for n in range(30):
        assert code(sign(region=f"wrong-{n}", key=replace(PLAIN, secret="another/secret")), verifier) == "SignatureDoesNotMatch"
    assert (len(verifier._claims), len(verifier._signers)) == (0, 0)
    for n in range(30):
        sign(region=f"right-{n}").verify(verifier)
        sign().with_header(b"x-forwarded-for-%d" % n, b"1").verify(verifier)
    assert 0 < len(verifier._claims) <= 8 and 0 < len(verifier._signers) <= 8
    assert all(len(claim.layouts) <= 3 and len(claim.drafts) <= 3 for claim in verifier._claims.values())


def test_secrets_are_in_no_repr_and_no_refusal() -> None:
    verifier = Verifier(KEYS.get)
    sign().verify(verifier)
    shown = [repr(TEMPORARY), repr(verifier), repr(verifier._signers and list(verifier._signers.values())), repr(sign().verify(verifier))]
    shown += [str(refusal(twin)) for _, twin in twins(sign(key=TEMPORARY))]
    for secret in (PLAIN.secret, TEMPORARY.secret, str(TEMPORARY.session_token)):
        assert not [text for text in shown if secret in text]


WORDS = """AWS4-HMAC-SHA256 Credential= SignedHeaders= Signature= , / ; = host x-amz-date 20261116 us-east-1 sqs aws4_request
    AKIAPLAINPLAINPLAIN1 % %zz & + X-Amz-Algorithm= X-Amz-Credential= X-Amz-Date= 20261116T223000Z X-Amz-Expires= 99999999999999999999
    X-Amz-SignedHeaders= X-Amz-Signature="""
PIECES = st.sampled_from([b" ", b"\x00", b"\xff", *(word.encode() for word in WORDS.split())])
JUNK = st.lists(PIECES | st.binary(max_size=8), max_size=16).map(b"".join)


def only_refused(sent: Sent) -> None:
    try:
        sent.verify()
    except SignatureRefused as error:
        assert error.text and error.text.isprintable()
    peek_scope(sent.query, sent.headers)


@settings(deadline=None, max_examples=300)
@given(authorization=JUNK, date=JUNK, query=JUNK, path=st.text(max_size=20), method=st.text(max_size=5), name=st.binary(max_size=10))
def test_nothing_but_a_refusal_comes_of_junk(authorization: bytes, date: bytes, query: bytes, path: str, method: str, name: bytes) -> None:
    headers = {b"host": b"h", b"authorization": authorization, b"x-amz-date": date, b"x-amz-" + name: name, b"date": date}
    only_refused(Sent(method, path, query, headers, b""))
    only_refused(Sent(method, path, query, {b"host": b"h"}, b""))


@settings(deadline=None, max_examples=300)
@given(presigned=st.booleans(), at=st.integers(0, 400), cut=st.integers(0, 40), junk=JUNK)
def test_nothing_but_a_refusal_comes_of_a_mangled_signature(presigned: bool, at: int, cut: int, junk: bytes) -> None:
    sent = presign() if presigned else sign()
    text = sent.query if presigned else sent.headers[b"authorization"]
    mangled = text[:at] + junk + text[at + cut :]
    only_refused(replace(sent, query=mangled) if presigned else sent.with_header(b"authorization", mangled))
