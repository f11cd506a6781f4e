"""The streams of a namespace: how they are made, and what one that is there must not do.

DOVETAIL_<namespace>       the log: subject dovetail.<namespace>.log, file storage, no limits; trimmed by purging a prefix
OBJ_DOVETAIL_<namespace>   snapshots: an object store bucket with as many copies
DOVETAIL1_<namespace> …    where there are several logs, the second one and on: subject dovetail.<namespace>.log.1, bucket OBJ_DOVETAIL1_…
"""

from __future__ import annotations

from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError

from ...errors import StorageError
from ...limits import ENTRY_BYTES_MIN

VERSION_MIN = (2, 12)
PAYLOAD_SLACK = 4096


def unfit(major: int, minor: int, max_payload: int) -> list[str]:
    """What is wrong with a server, whatever its streams are."""
    found = []
    if (major, minor) < VERSION_MIN:
        least = ".".join(map(str, VERSION_MIN))
        found.append(f"the server is of version {major}.{minor}; at least {least} is needed.")
    if max_payload - PAYLOAD_SLACK < ENTRY_BYTES_MIN:
        found.append(
            f"the server takes messages of {max_payload} bytes; {ENTRY_BYTES_MIN + PAYLOAD_SLACK} are needed"
            " (max_payload: 2MB in its configuration)."
        )
    return found


def stream_name(namespace: str, log: int = 0) -> str:
    """Of its `log`-th log. A namespace may have any letters and digits behind the first _, so that no two logs share a name."""
    return f"DOVETAIL{log or ''}_{namespace}"


def subject(namespace: str, log: int = 0) -> str:
    return f"dovetail.{namespace}.log" + (f".{log}" if log else "")


def wanted(namespace: str, replicas: int, log: int = 0) -> api.StreamConfig:
    return api.StreamConfig(
        name=stream_name(namespace, log),
        description="Dovetail: the log of a namespace. Nothing but dovetail nodes may publish here.",
        subjects=[subject(namespace, log)],
        retention=api.RetentionPolicy.LIMITS,
        discard=api.DiscardPolicy.NEW,
        storage=api.StorageType.FILE,
        num_replicas=replicas,
        deny_delete=True,
    )


async def the_stream(js: JetStreamContext, namespace: str, replicas: int, log: int = 0) -> api.StreamInfo:
    """The one that is there, or a new one. Several nodes may make it at once: a stream of the same name and settings is the same."""
    name = stream_name(namespace, log)
    try:
        return await js.stream_info(name)
    except NotFoundError:
        await js.add_stream(wanted(namespace, replicas, log))
        return await js.stream_info(name)


def check(config: api.StreamConfig, namespace: str, log: int = 0) -> None:
    """Refuse what would delete messages that wait, or let others write between them."""
    if found := wrong(config, namespace, log):
        raise StorageError(f"The stream {config.name} cannot hold a log: {'; '.join(found)}. (`nats stream edit {config.name}`)")


def wrong(config: api.StreamConfig, namespace: str, log: int = 0) -> list[str]:
    """Each line names the setting and what it must be."""
    most = {
        "max_age": config.max_age,
        "max_bytes": config.max_bytes,
        "max_msgs": config.max_msgs,
        "max_msgs_per_subject": config.max_msgs_per_subject,
    }
    found = [
        f"{name} is {value}, must be unlimited: messages that wait would be deleted" for name, value in most.items() if _limited(value)
    ]
    if config.discard != api.DiscardPolicy.NEW:
        found.append(f"discard is {_word(config.discard)}, must be new: messages that wait would be deleted")
    if config.retention != api.RetentionPolicy.LIMITS:
        found.append(f"retention is {_word(config.retention)}, must be limits: every node reads all of it")
    if config.storage != api.StorageType.FILE:
        found.append(f"storage is {_word(config.storage)}, must be file")
    subjects = [subject(namespace, log)]
    if config.subjects != subjects:
        found.append(f"subjects are {config.subjects}, must be {subjects}: nobody else may write here")
    if config.sealed or config.deny_purge:
        found.append("it is sealed or denies purges, and must take messages and trims")
    if config.mirror is not None or config.sources:
        found.append("it mirrors another stream or gathers others, and must be written by nodes alone")
    if config.no_ack:
        found.append("no_ack is on, must be off")
    if config.allow_msg_ttl:
        found.append("allow_msg_ttl is on, must be off: messages that wait could be deleted")
    return found


def _limited(value: float | None) -> bool:
    return value is not None and value > 0


def _word(value: object) -> str:
    return str(getattr(value, "value", value))
