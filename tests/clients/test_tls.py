"""Promises of TLS: an unmodified client that knows the certificate's maker is served, one that does not refuses, and a certificate that is
replaced while the node runs counts from the next connection on."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from botocore.exceptions import SSLError

from tests.clients.aws import client
from tests.clients.conftest import Start
from tests.clients.node import Node, NotStarted

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")
NOTICE_S = 30.0


class Pair(NamedTuple):
    cert: Path
    key: Path


def make(folder: Path, name: str) -> Pair:
    """A certificate that signed itself, for both names of this machine."""
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    assert OPENSSL is not None
    subprocess.run(
        [
            OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", f"/CN={name}",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(pair.key), "-out", str(pair.cert),
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return pair


def shown(node: Node) -> str:
    """The certificate that a new connection is shown."""
    return ssl.get_server_certificate(("127.0.0.1", node.port))


def text(pair: Pair) -> str:
    return pair.cert.read_text()


def replace(old: Pair, new: Pair) -> None:
    for source, target in zip(new, old, strict=True):
        copied = target.with_suffix(".new")
        shutil.copy(source, copied)
        copied.replace(target)


def wait_for(node: Node, pair: Pair) -> None:
    give_up = time.monotonic() + NOTICE_S
    while shown(node) != text(pair):
        assert time.monotonic() < give_up, node.errors
        time.sleep(0.05)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return make(tmp_path, "first")


@pytest.fixture
def node(start: Start, pair: Pair) -> Node:
    return start("--store", "memory:", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key))


def test_a_client_that_trusts_the_certificate_is_served_and_others_refuse(node: Node, pair: Pair, tmp_path: Path) -> None:
    assert node.url == f"https://127.0.0.1:{node.port}"
    sqs = client(node, verify=str(pair.cert))
    url = sqs.create_queue(QueueName="sealed")["QueueUrl"]
    assert url == f"{node.url}/000000000000/sealed", "its URL leads back through TLS"
    sqs.send_message(QueueUrl=url, MessageBody="nobody listens")
    assert (
        client(node, node.url_at("localhost"), verify=str(pair.cert)).receive_message(QueueUrl=url)["Messages"][0]["Body"]
        == "nobody listens"
    )
    for stranger in (True, str(make(tmp_path, "stranger").cert)):
        with pytest.raises(SSLError):
            client(node, verify=stranger).list_queues()


def test_a_new_certificate_counts_from_the_next_connection_on(node: Node, pair: Pair, tmp_path: Path) -> None:
    first, second = Pair(tmp_path / "kept.pem", tmp_path / "kept.key"), make(tmp_path, "second")
    for source, target in zip(pair, first, strict=True):
        shutil.copy(source, target)
    assert shown(node) == text(first)
    before = client(node, verify=str(first.cert))
    url = before.create_queue(QueueName="long")["QueueUrl"]
    replace(pair, second)
    wait_for(node, second)
    before.send_message(QueueUrl=url, MessageBody="over the connection that was there")
    assert client(node, verify=str(second.cert)).receive_message(QueueUrl=url)["Messages"]
    with pytest.raises(SSLError):
        client(node, verify=str(first.cert)).list_queues()


def test_a_pair_that_does_not_fit_is_told_and_the_old_one_stays(node: Node, pair: Pair, tmp_path: Path) -> None:
    old, half = text(pair), make(tmp_path, "half")
    shutil.copy(half.cert, pair.cert)  # Its key is still the old one.
    give_up = time.monotonic() + NOTICE_S
    while "the new certificate cannot be used" not in node.errors:
        assert time.monotonic() < give_up, node.errors
        time.sleep(0.05)
    assert shown(node) == old
    shutil.copy(half.key, pair.key)
    wait_for(node, half)


def test_plain_http_and_garbage_at_the_tls_door_cost_nobody_anything(node: Node, pair: Pair) -> None:
    sockets = []
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(2000), b"", b"\x80" * 70_000, *[b""] * 300):
        sockets.append(made := socket.create_connection(("127.0.0.1", node.port), timeout=60))
        try:
            made.sendall(data)
        except OSError:
            pass
    assert "QueueUrls" not in client(node, verify=str(pair.cert)).list_queues()
    for made in sockets:
        made.close()
    assert node.running and "Traceback" not in node.errors, node.errors


def test_old_versions_of_tls_are_refused(node: Node, pair: Pair) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(pair.cert)
    with (
        socket.create_connection(("127.0.0.1", node.port), timeout=60) as made,
        context.wrap_socket(made, server_hostname="localhost") as sealed,
    ):
        assert sealed.version() in ("TLSv1.2", "TLSv1.3")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as made, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(made, server_hostname="localhost")


@pytest.mark.parametrize(
    "flags", [("--tls-cert", "first.pem"), ("--tls-key", "first.key"), ("--tls-cert", "first.key", "--tls-key", "first.key")]
)
def test_half_a_pair_is_refused_at_the_start(start: Start, pair: Pair, flags: tuple[str, ...]) -> None:
    with pytest.raises(NotStarted) as refused:
        start("--store", "memory:", *flags)
    assert refused.value.code == 2 and "--tls-cert" in refused.value.errors
