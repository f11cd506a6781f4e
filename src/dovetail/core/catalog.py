"""Names of queues, within namespaces (an account and region, say). A queue id is given once and never again."""

from __future__ import annotations


class Catalog:
    __slots__ = ("by_id", "by_name", "next")

    def __init__(self) -> None:
        self.next = 1
        self.by_name: dict[tuple[str, str], int] = {}
        self.by_id: dict[int, tuple[str, str]] = {}

    def get(self, namespace: str, name: str) -> int | None:
        return self.by_name.get((namespace, name))

    def add(self, namespace: str, name: str) -> int:
        queue = self.next
        self.next += 1
        self.by_name[namespace, name] = queue
        self.by_id[queue] = (namespace, name)
        return queue

    def remove(self, queue: int) -> bool:
        key = self.by_id.pop(queue, None)
        if key is None:
            return False
        del self.by_name[key]
        return True
