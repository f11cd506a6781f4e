"""What JetStream says of a namespace: its stream, the copies of it, and the settings that a node would refuse."""

from __future__ import annotations

from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.errors import BucketNotFoundError, NotFoundError

from ..shared.health import Copy, Health
from ..shared.place import Place
from . import stream


async def health(client: Client, place: Place, ask_s: float) -> Health | None:
    """None where the stream is not there. Nothing is made."""
    js = client.jetstream(timeout=ask_s)
    try:
        info = await js.stream_info(stream.stream_name(place.namespace))
    except NotFoundError:
        return None
    copies = _copies(info)
    replicas = info.config.num_replicas or 1
    version = client.connected_server_version
    wrong = [*stream.unfit(version.major, version.minor, client.max_payload), *stream.wrong(info.config, place.namespace)]
    wrong += [f"the copy on {copy.server} is not current ({copy.behind} entries behind)" for copy in copies if not copy.current]
    if replicas > 1 and not any(copy.leads for copy in copies):
        wrong.append("no server leads the log at this moment: one is being elected, or a majority is missing")
    return Health(
        place.shown,
        f"NATS {version.major}.{version.minor}.{version.patch}",
        place.durability(replicas),
        copies,
        max(1, info.state.first_seq),
        info.state.last_seq + 1,
        info.state.bytes,
        wrong,
        await _blobs(js, info.config.name or ""),
    )


def _copies(info: api.StreamInfo) -> list[Copy]:
    cluster = info.cluster
    if cluster is None or cluster.name is None:
        return [Copy("the only server", True, True, 0)]
    leader = [Copy(cluster.leader, True, True, 0)] if cluster.leader else []
    others = [Copy(peer.name or "?", False, bool(peer.current) and not peer.offline, peer.lag or 0) for peer in cluster.replicas or ()]
    return leader + others


async def _blobs(js: JetStreamContext, bucket: str) -> list[tuple[str, int]]:
    try:
        found = await (await js.object_store(bucket)).list(ignore_deletes=True)
    except (BucketNotFoundError, NotFoundError):
        return []
    return sorted((str(one.name), one.size or 0) for one in found if not one.deleted)
