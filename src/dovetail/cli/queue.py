"""Look at the queues of a running node, and work with them: make and remove, send and receive, peek without receiving, redrive.

It speaks to the node over HTTP as any client does. --endpoint says where (or DOVETAIL_ENDPOINT, or AWS_ENDPOINT_URL_SQS), and calls are
signed when AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are set. (Reservations are asked for at the native door.) Tables are for people;
--json is for programs."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import BadRequest, DovetailError
from . import messages, reservations, sqsclient, tables
from .sqsclient import CallRefused, Client, Keys

EXAMPLES = """\
examples:
  dovetail queue ls
  dovetail queue create orders visibility_timeout=5m dead_letter=orders-dead max_receives=5
  dovetail queue send orders 'two dozen eggs' --attribute shop=north
  dovetail queue send orders --file order.json             or from a pipe: … | dovetail queue send orders
  dovetail queue send orders --lines < orders.txt          one message for each line
  dovetail queue peek orders                               look; nobody notices
  dovetail queue receive orders --max 10 --wait 20 --delete
  dovetail queue receive orders --bodies --delete > next.txt
  dovetail queue redrive orders-dead                       dead letters go back to where they came from
  dovetail queue reservations orders                       what jobs have set aside
  dovetail queue release orders billing                    … and give it back, where the job is gone for good
  dovetail queue ls --json | jq -r '.[] | select(.visible > 1000) | .name'
"""

FOLLOW_S = 0.2
"""How often a redrive is asked how far it is."""


def arguments(parser: argparse.ArgumentParser) -> None:
    names = "ls|create|show|send|receive|peek|purge|rm|redrive|reservations|release"
    verbs = parser.add_subparsers(dest="verb", required=True, metavar=names, parser_class=_Verb)
    ls = _verb(verbs, "ls", "every queue and what is in it", queue=False)
    ls.add_argument("prefix", metavar="PREFIX", nargs="?", help="only queues whose names begin with this")
    ls.add_argument("--names", action="store_true", help="names only, one a line; quick also with very many queues")
    create = _verb(verbs, "create", "make a queue; a name that ends with .fifo makes a FIFO queue")
    create.add_argument("attributes", metavar="KEY=VALUE", nargs="*", help="as in a file of queues: delay=10 retention=14d tags.team=shop")
    _verb(verbs, "show", "a queue's attributes, tags and counts")
    send = _verb(verbs, "send", "send a message: its body is BODY, a file, or what comes from a pipe")
    send.add_argument("body", metavar="BODY", nargs="?", help="the body itself")
    send.add_argument("--file", metavar="FILE", help="the body is this file's text (- is stdin)")
    send.add_argument("--lines", action="store_true", help="each line of the file or pipe is a message of its own")
    send.add_argument("--delay", metavar="SECONDS", type=_seconds, help="until receivers see it")
    send.add_argument("--group", metavar="ID", help="the message group: needed on a FIFO queue, a tenant on others")
    send.add_argument("--deduplication", metavar="ID", help="by which a FIFO queue knows a repeat")
    send.add_argument("--attribute", metavar="NAME=VALUE", action="append", default=[], help="a message attribute; may be repeated")
    receive = _verb(verbs, "receive", "receive messages; without --delete they come back when their time is over")
    receive.add_argument("--max", metavar="N", type=_count, default=1, help="at most so many (default: 1)")
    receive.add_argument("--wait", metavar="SECONDS", type=_seconds, help="for the first message, up to 20 (default: the queue's)")
    receive.add_argument("--visibility", metavar="SECONDS", type=_seconds, help="hidden from others for so long (default: the queue's)")
    receive.add_argument("--delete", action="store_true", help="and delete what was printed")
    receive.add_argument("--bodies", action="store_true", help="bodies only, one a line")
    peek = _verb(verbs, "peek", "look at messages without receiving them: nothing is hidden, nothing is counted")
    peek.add_argument("--max", metavar="N", type=_count, default=10, help="at most so many (default: 10)")
    peek.add_argument("--after", metavar="SEQUENCE", type=_count, help="go on behind this one")
    for name, text in (("purge", "delete every message of a queue"), ("rm", "remove a queue with everything in it")):
        _verb(verbs, name, text).add_argument("--yes", action="store_true", help="do not ask, also at a keyboard")
    redrive = _verb(verbs, "redrive", "send dead letters back to where they came from, and wait until it is done")
    redrive.add_argument("--to", metavar="QUEUE", help="… or to this queue")
    redrive.add_argument("--rate", metavar="N", type=_count, help="messages a second, up to 500 (default: 500)")
    redrive.add_argument("--detach", action="store_true", help="do not wait")
    redrive.add_argument("--status", action="store_true", help="only show the last tasks")
    redrive.add_argument("--cancel", action="store_true", help="only stop the one that runs")
    reservations.arguments(verbs)


class _Verb(argparse.ArgumentParser):
    """Options may stand anywhere, also between a queue and the body that is sent to it; by itself argparse would not find the body."""

    _mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._mixing:
            return super().parse_known_args(args, namespace)
        self._mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False


def _verb(verbs: argparse._SubParsersAction[_Verb], name: str, text: str, *, queue: bool = True) -> argparse.ArgumentParser:
    made = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
    if queue:
        made.add_argument("queue", metavar="QUEUE", help="its name, or its URL")
    made.add_argument("--endpoint", metavar="URL", help=f"the node (or DOVETAIL_ENDPOINT; default: {sqsclient.ENDPOINT})")
    made.add_argument("--region", metavar="NAME", help="or AWS_REGION (default: the node's)")
    made.add_argument("--account", metavar="ID", help="on a node that lets everyone in: whose queues (default: the node's)")
    made.add_argument("--json", action="store_true", help="for programs")
    return made


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of seconds")
    return int(text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18 or text.strip("0") == "":
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1")
    return int(text)


def run(given: argparse.Namespace) -> int:
    if given.verb in ("reservations", "release"):
        reservations.run(given)
    else:
        VERBS[given.verb](client_of(given), given)
    return 0


def client_of(given: argparse.Namespace) -> Client:
    """Where to and as whom, by flags and environment."""
    environment = os.environ
    endpoint = given.endpoint or environment.get("DOVETAIL_ENDPOINT") or environment.get("AWS_ENDPOINT_URL_SQS") or sqsclient.ENDPOINT
    region = given.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    identity, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    keys = None
    if given.account is not None:
        if len(given.account) != 12 or not given.account.isdigit():
            raise BadRequest(f"--account {given.account}: must be twelve digits")
        keys = Keys(given.account, "none")
    elif identity and secret:
        keys = Keys(identity, secret, environment.get("AWS_SESSION_TOKEN"))
    elif region:
        keys = Keys("none", "none")  # A node that lets everyone in still reads the region out of the signature.
    return Client(endpoint, region or sqsclient.REGION, keys)


# Queues

COUNTS = {
    "visible": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
}


def ls(client: Client, given: argparse.Namespace) -> None:
    urls = list(_urls(client, given.prefix))
    if given.names:
        names = [_name(url) for url in urls]
        print(json.dumps(names) if given.json else "\n".join(names))
        return
    rows = []
    for url in urls:
        try:
            counts = client.attributes(url, *COUNTS.values())
        except CallRefused as error:
            if error.kind == sqsclient.NO_QUEUE:
                continue  # Somebody removed it just now.
            raise
        rows.append({"name": _name(url), **{name: int(counts[attribute]) for name, attribute in COUNTS.items()}, "url": url})
    tables.tell(given.json, rows, "there are no queues: dovetail queue create NAME", leave_out=("url",))


def _urls(client: Client, prefix: str | None) -> Iterator[str]:
    token = None
    while True:
        page = client.call("ListQueues", QueueNamePrefix=prefix, MaxResults=1000, NextToken=token)
        yield from page.get("QueueUrls", ())
        token = page.get("NextToken")
        if token is None:
            return


def _name(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


def create(client: Client, given: argparse.Namespace) -> None:
    from ..doors.sqs import queuefile  # The whole door comes along, and no other verb needs it.

    name, fifo = given.queue, given.queue.endswith(".fifo")
    attributes, tags, ours = {"FifoQueue": "true"} if fifo else {}, {}, {}
    for pair in given.attributes:
        key, equals, value = pair.partition("=")
        if not equals:
            raise BadRequest(f"{pair}: must be KEY=VALUE, such as visibility_timeout=60")
        if key.startswith("tags."):
            tags[key.removeprefix("tags.")] = value
        elif key in ("dead_letter", "max_receives"):
            ours[key] = value
        else:
            try:
                # What goes beyond SQS is for the node to allow or to refuse.
                attribute, text = queuefile.attribute_of(key, value, fifo, beyond=True)
            except ValueError as error:
                raise BadRequest(f"{key}: {error}") from None
            attributes[attribute] = text
    if "max_receives" in ours and "dead_letter" not in ours:
        raise BadRequest("max_receives: says after how many receives a message goes to dead_letter, which is missing")
    if "dead_letter" in ours:
        arn = client.attributes(ours["dead_letter"], "QueueArn")["QueueArn"]
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": ours.get("max_receives", str(queuefile.RECEIVES_DEFAULT))}
        attributes["RedrivePolicy"] = json.dumps(policy)
    url = client.call("CreateQueue", QueueName=name, Attributes=attributes or None, tags=tags or None)["QueueUrl"]
    print(json.dumps({"name": name, "url": url}) if given.json else url)


def show(client: Client, given: argparse.Namespace) -> None:
    attributes = client.attributes(given.queue, "All")
    tags = client.on(given.queue, "ListQueueTags").get("Tags", {})
    sources = [_name(url) for url in client.on(given.queue, "ListDeadLetterSourceQueues")["queueUrls"]]
    if given.json:
        print(json.dumps({"attributes": attributes, "tags": tags, "dead_letter_sources": sources}))
        return
    stamps = ("CreatedTimestamp", "LastModifiedTimestamp")
    shown = {name: tables.instant(int(value) * 1000) if name in stamps else value for name, value in attributes.items()}
    shown |= {f"tags.{name}": value for name, value in tags.items()}
    if sources:
        shown["dead letters of"] = ", ".join(sources)
    width = max(map(len, shown))
    for name, value in shown.items():
        print(f"{tables.line(name):<{width}}  {tables.safe(value)}")


def purge(client: Client, given: argparse.Namespace) -> None:
    _be_sure(client, given, "delete the {count} messages of {queue}")
    client.on(given.queue, "PurgeQueue")
    print(json.dumps({"purged": given.queue}) if given.json else f"{given.queue} is empty")


def rm(client: Client, given: argparse.Namespace) -> None:
    _be_sure(client, given, "remove {queue} and the {count} messages in it")
    client.on(given.queue, "DeleteQueue")
    print(json.dumps({"removed": given.queue}) if given.json else f"{given.queue} is removed")


def _be_sure(client: Client, given: argparse.Namespace, question: str) -> None:
    """A person is asked; a script meant it."""
    if given.yes or not sys.stdin.isatty():
        return
    counts = client.attributes(given.queue, *COUNTS.values())
    asked = question.format(queue=given.queue, count=f"{sum(map(int, counts.values())):,}")
    print(f"{asked}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DovetailError("nothing was done")


# Dead letters


def redrive(client: Client, given: argparse.Namespace) -> None:
    source = client.attributes(given.queue, "QueueArn")["QueueArn"]
    if given.status:
        tasks = client.call("ListMessageMoveTasks", SourceArn=source, MaxResults=10).get("Results", [])
        rows = [
            {
                "status": task["Status"].lower(),
                "moved": task["ApproximateNumberOfMessagesMoved"],
                "of": task.get("ApproximateNumberOfMessagesToMove"),
                "started": tables.instant(task["StartedTimestamp"]),
                "to": _arn_name(task.get("DestinationArn")) or "their sources",
                "failure": task.get("FailureReason"),
            }
            for task in tasks
        ]
        tables.tell(given.json, rows, f"nothing was redriven from {given.queue} since the node started")
        return
    if given.cancel:
        running = client.call("ListMessageMoveTasks", SourceArn=source).get("Results", [{}])[0].get("TaskHandle")
        if running is None:
            raise DovetailError(f"no redrive of {given.queue} is running")
        moved = client.call("CancelMessageMoveTask", TaskHandle=running)["ApproximateNumberOfMessagesMoved"]
        print(json.dumps({"status": "cancelled", "moved": moved}) if given.json else f"cancelled; {moved:,} messages had moved")
        return
    target = client.attributes(given.to, "QueueArn")["QueueArn"] if given.to is not None else None
    handle = client.call("StartMessageMoveTask", SourceArn=source, DestinationArn=target, MaxNumberOfMessagesPerSecond=given.rate)[
        "TaskHandle"
    ]
    if given.detach:
        print(json.dumps({"status": "running", "task": handle}) if given.json else "running; --status shows how far it is")
        return
    while (task := client.call("ListMessageMoveTasks", SourceArn=source)["Results"][0])["Status"] in ("RUNNING", "CANCELLING"):
        time.sleep(FOLLOW_S)
    status, moved = task["Status"].lower(), task["ApproximateNumberOfMessagesMoved"]
    if status == "failed":
        raise DovetailError(f"the redrive failed after {moved:,} messages: {task.get('FailureReason')}")
    print(json.dumps({"status": status, "moved": moved}) if given.json else f"{status}: {moved:,} messages moved")


def _arn_name(arn: str | None) -> str | None:
    return arn.rpartition(":")[2] if arn is not None else None


VERBS: dict[str, Callable[[Client, argparse.Namespace], None]] = {
    "ls": ls,
    "create": create,
    "show": show,
    "send": messages.send,
    "receive": messages.receive,
    "peek": messages.peek,
    "purge": purge,
    "rm": rm,
    "redrive": redrive,
}
