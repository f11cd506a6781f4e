"""What Kafka says of a namespace: its topics, the copies of its log, and the settings that a node would refuse."""

from __future__ import annotations

from ...errors import StorageError
from ..shared.health import Copy, Health
from ..shared.place import Place
from . import topic
from .blobs import TopicBlobs
from .cluster import Cluster


def health(place: Place, cluster: Cluster, blobs: TopicBlobs) -> Health | None:
    """None where the log is not there. Nothing is made."""
    told, found = cluster.look()
    name = topic.log(place.namespace)
    if name not in found:
        return None
    wrong = [f"{one}: {line}" for one, lines in topic.unfit(found, place.namespace, place.synced).items() for line in lines]
    try:
        cluster.check_versions()
    except StorageError as error:
        wrong.append(str(error))
    log = told.topics[name].partitions[0]
    servers = {number: f"{broker.host}:{broker.port}" for number, broker in told.brokers.items()}
    copies = [
        Copy(servers.get(number, f"broker {number}, which is not there"), number == log.leader, number in log.isrs, None)
        for number in log.replicas
    ]
    wrong += [f"the copy on {copy.server} is not in step" for copy in copies if not copy.current]
    first, following = cluster.bounds(name)
    return Health(
        place.shown,
        f"Kafka, {len(told.brokers)} of its brokers are there",
        place.durability(len(copies)),
        copies,
        first + 1,
        following + 1,
        None,
        wrong,
        blobs.sizes() if topic.blobs(place.namespace) in found else [],
    )
