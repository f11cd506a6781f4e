"""What brokers are asked now and then: what there is, where it begins and ends, and to let a prefix go.

Every call here waits for its answer, so it is made in a thread and never on the loop. Whatever goes wrong is `Unavailable` and can be tried
again, except for what an operator has to change, which is a `StorageError` that names it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

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
        "topic.metadata.refresh.fast.interval.ms": 100,
    }


class Cluster:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._admin = self._client()

    def _client(self) -> AdminClient:
        return AdminClient(client_settings(self._place))

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
                self._admin = self._client()
            if time.monotonic() > give_up:
                raise StorageError(f"{self._place.shown}: its topics could not be had: {why}")
            time.sleep(OPEN_PAUSE_S)

    def _made(self) -> dict[str, topic.Found] | None:
        """None where it takes another look to see them."""
        told = self._admin.list_topics(timeout=ASK_S)
        namespace = self._place.namespace
        names = (topic.log(namespace), topic.chunks(namespace), topic.blobs(namespace))
        if missing := [name for name in names if name not in told.topics]:
            copies = self._place.copies(len(told.brokers))
            wanted = topic.wanted(namespace, copies, self._place.synced)
            self._make({name: wanted[name] for name in missing}, copies)
            return None
        partitions = {name: told.topics[name].partitions for name in names}
        if any(not each or any(one.leader not in told.brokers for one in each.values()) for each in partitions.values()):
            return None
        self._ends(names, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the library has not typed these
        described = self._admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name) for name in names], request_timeout=ASK_S)
        found = {}
        for resource, future in described.items():
            settings = {name: str(entry.value) for name, entry in _result(future).items()}
            each = partitions[resource.name]
            found[resource.name] = topic.Found(len(each), min(len(one.replicas) for one in each.values()), settings)
        return found

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
            asked = [self._asked([name], end) for end in (OffsetSpec.earliest(), OffsetSpec.latest())]  # type: ignore[no-untyped-call]
            ((first,), (following,)) = ([int(_result(one).offset) for one in each.values()] for each in asked)
            return first, following

    def _ends(self, names: Iterable[str], end: OffsetSpec) -> list[int]:
        return [int(_result(one).offset) for one in self._asked(names, end).values()]

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
            self._admin = self._client()
            raise Unavailable(f"{self._place.shown}: {_words(error)}") from error


def _result(future: Future[Any]) -> Any:
    return future.result(2 * ASK_S)


def _words(error: Exception) -> str:
    told = error.args[0] if error.args else None
    return str(told.str()) if isinstance(told, KafkaError) else repr(error)
