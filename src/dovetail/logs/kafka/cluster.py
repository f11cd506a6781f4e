"""What brokers are asked now and then: what there is, where it begins and ends, and to let a prefix go.

Every call here waits for its answer, so it is made in a thread and never on the loop. Whatever goes wrong is `Unavailable` and can be tried
again, except for what an operator has to change, which is a `StorageError` that names it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, NewTopic, OffsetSpec

from ...errors import StorageError, Unavailable
from ..shared.place import Place
from . import topic, version

CONNECT_S = 3.0
ASK_S = 5.0
OPEN_S = 60.0
"""Brokers that were started a moment ago take their time, on machines that are busy above all."""
OPEN_PAUSE_S = 0.02

_TRIED_AGAIN = (KafkaException, TimeoutError)


def client_settings(place: Place) -> dict[str, Any]:
    """What all clients of ours have in common. Lines that are lost are made again at once; nothing is written to stderr: what matters is
    raised."""
    return {
        "bootstrap.servers": ",".join(place.hosts),
        "client.id": "dovetail",
        "log_level": 0,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "socket.connection.setup.timeout.ms": int(1000 * CONNECT_S),
        "socket.timeout.ms": int(1000 * ASK_S),
        # A client asks who leads when a broker goes, which is before another one was elected; and then for five minutes not again.
        "topic.metadata.refresh.interval.ms": 1000,
        "topic.metadata.refresh.fast.interval.ms": 100,
    }


class Cluster:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: AdminClient | None = None

    @property
    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(client_settings(self._place))
        return self._client

    def let_go(self) -> None:
        """Of the client; the next question is asked by another one. (The library has threads, and a thousand clients at most.)"""
        self._client = None

    def check_versions(self) -> None:
        """Of the servers that the URL names, as far as they are there; one that is suffices."""
        reached, why = False, ""
        for server in self._place.hosts:
            host, _, port = server.rpartition(":")
            try:
                spoken = version.spoken(host.strip("[]"), int(port), CONNECT_S)
            except OSError as error:
                why = f"{server}: {error}"
                continue
            reached = True
            if version.old(spoken):
                raise StorageError(
                    f"{self._place.shown}: the broker at {server} is older than {version.VERSION_MIN}, which is needed (it speaks"
                    f" Fetch up to version {spoken.get(version.FETCH, 0)}, not {version.FETCH_MIN})."
                )
        if not reached:
            raise Unavailable(f"{self._place.shown} cannot be reached: {why}")

    def topics(self) -> dict[str, topic.Found]:
        """The three of the namespace; what is not there is made. Brokers that were just started, or elect a leader, refuse for a while."""
        give_up = time.monotonic() + OPEN_S
        while True:
            why = "no broker leads them"
            try:
                if (found := self._made()) is not None:
                    return found
            except _TRIED_AGAIN as error:
                why = _words(error)
                self.let_go()
            if time.monotonic() > give_up:
                raise StorageError(f"{self._place.shown}: its topics could not be had: {why}")
            time.sleep(OPEN_PAUSE_S)

    def _made(self) -> dict[str, topic.Found] | None:
        """None where it takes another look to see them."""
        told = self._admin.list_topics(timeout=ASK_S)
        names = topic.names(self._place.namespace)
        if missing := [name for name in names if name not in told.topics]:
            copies = self._place.copies(len(told.brokers))
            wanted = topic.wanted(self._place.namespace, copies, self._place.synced)
            self._make({name: wanted[name] for name in missing}, copies)
            return None
        if any(one.leader not in told.brokers for name in names for one in told.topics[name].partitions.values()):
            return None
        for future in self._asked(names, OffsetSpec.latest()).values():  # type: ignore[no-untyped-call]  # not typed by the library
            _result(future)
        return self._found(told, names)

    def _found(self, told: ClusterMetadata, names: Sequence[str]) -> dict[str, topic.Found]:
        asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        found = {}
        for resource, future in self._admin.describe_configs(asked, request_timeout=ASK_S).items():
            partitions = told.topics[resource.name].partitions
            settings = {name: str(entry.value) for name, entry in _result(future).items()}
            found[resource.name] = topic.Found(len(partitions), min(len(one.replicas) for one in partitions.values()), settings)
        return found

    def look(self) -> tuple[ClusterMetadata, dict[str, topic.Found]]:
        """What there is, brokers and those of the three topics that are there. Nothing is made."""
        with self._asking():
            told = self._admin.list_topics(timeout=ASK_S)
            names = [name for name in topic.names(self._place.namespace) if name in told.topics]
            return told, self._found(told, names) if names else {}

    def _make(self, wanted: Mapping[str, Mapping[str, str]], copies: int) -> None:
        """Several nodes may make them at once: whoever comes later finds them."""
        asked = [NewTopic(name, 1, copies, config=dict(settings)) for name, settings in wanted.items()]
        for future in self._admin.create_topics(asked, request_timeout=ASK_S).values():
            try:
                _result(future)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def bounds(self, name: str) -> tuple[int, int]:
        """(the oldest offset that is kept, the one that the next packet gets), as whoever leads has it."""
        with self._asking():
            ends = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
            first, following = (future for end in ends for future in self._asked([name], end).values())
            return int(_result(first).offset), int(_result(following).offset)

    def _asked(self, names: Iterable[str], end: OffsetSpec) -> Mapping[TopicPartition, Future[Any]]:
        return self._admin.list_offsets({TopicPartition(name, 0): end for name in names}, request_timeout=ASK_S)

    def trim(self, name: str, offset: int) -> None:
        """Everything below `offset` may go. Nothing is below 0, and below it Kafka means the end."""
        if offset > 0:
            with self._asking():
                for future in self._admin.delete_records([TopicPartition(name, 0, offset)], request_timeout=ASK_S).values():
                    _result(future)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except _TRIED_AGAIN as error:
            # What a client believes of leaders it believes for a quarter of an hour, also when brokers tell it that this is over.
            self.let_go()
            raise Unavailable(f"{self._place.shown}: {_words(error)}") from error


def _result(future: Future[Any]) -> Any:
    return future.result(2 * ASK_S)


def _words(error: Exception) -> str:
    told = error.args[0] if error.args else None
    return str(told.str()) if isinstance(told, KafkaError) else repr(error)
