"""Clients as their makers ship them, pointed at a node. Nothing of them is patched; what is set here is what a person sets."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

from tests.clients.node import Node

REGION = "us-east-1"
KEY, SECRET = "AKIAMADEUP", "made-up-secret"


def settings(**more: Any) -> Config:
    # One attempt: a test that passes on the second try has hidden the first. Waits are long because the machine may be busy.
    return Config(retries={"total_max_attempts": 1}, connect_timeout=60, read_timeout=60, **more)


def session(key: str = KEY, secret: str = SECRET, region: str = REGION, token: str | None = None) -> boto3.Session:
    return boto3.Session(aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token, region_name=region)


def client(node: Node, url: str | None = None, *, key: str = KEY, secret: str = SECRET, region: str = REGION, **more: Any) -> Any:
    """A boto3 client; Any because boto3 makes its methods while it runs. `token`: of a session. `models`: a folder for AWS_DATA_PATH."""
    made = session(key, secret, region, more.pop("token", None))
    models = more.pop("models", None)
    if models is not None:
        made._loader.search_paths.insert(0, str(models))
    more.setdefault("config", settings())
    return made.client("sqs", endpoint_url=url or node.url, **more)


def plain(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without what differs each time and was not asked for."""
    metadata = answer.pop("ResponseMetadata")
    assert metadata["HTTPStatusCode"] == 200 and metadata["RequestId"] == metadata["HTTPHeaders"]["x-amzn-requestid"]
    return answer
