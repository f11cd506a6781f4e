"""The ledger of the crash tests: what was asked, what was told, and what must therefore be found. It believes nothing but the pipe."""

from __future__ import annotations

from collections import Counter
from typing import Any


class LawBroken(AssertionError):
    """Something acknowledged is missing, doubled or back."""


class Ledger:
    def __init__(self) -> None:
        self.asked: dict[str, str] = {}
        """key → queue of every send that was ever asked for."""
        self.acked: set[str] = set()
        self.leaving: set[str] = set()
        """Completes that were asked for."""
        self.left: set[str] = set()
        self.both: dict[str, str] = {}
        self.dead: dict[str, str] = {}
        """Receipts that must be refused: of completed and given-back deliveries, by key."""
        self._last: dict[str, str] = {}
        self._number: list[Any] | None = None
        self.counts: Counter[str] = Counter()

    def hear(self, word: str, *rest: Any) -> None:
        self.counts[word] += 1
        match word:
            case "send?":
                self.asked.update(dict.fromkeys(rest[1:], rest[0]))
            case "send":
                self.acked.update(rest)
            case "number?":
                self._number = list(rest)
            case "got":
                key, receipt = rest
                if key in self.left:
                    raise LawBroken(f"{key} was completed and came back")
                if key not in self.asked:
                    raise LawBroken(f"{key} was never sent")
                self._last[key] = receipt
            case "done?":
                self.leaving.add(rest[0])
            case "done":
                self._gone(rest[0])
            case "back":
                self.dead[rest[0]] = rest[1]
            case "both?":
                self.leaving.add(rest[0])
                self.both[rest[0]] = rest[1]
            case "both":
                self._gone(rest[0])
                self.acked.add(rest[1])

    def _gone(self, key: str) -> None:
        self.left.add(key)
        self.dead[key] = self._last[key]

    def resend(self) -> dict[str, Any]:
        """What the next life sends again because its outcome is not known."""
        number = self._number if self._number is not None and self._number[1] not in self.acked else None
        dedup = [key for key, queue in self.asked.items() if queue == "once" and key not in self.acked]
        return {"number": number, "dedup": dedup}

    def judge(self, found: dict[str, list[str]]) -> None:
        """`found`: the keys that each queue holds, in order."""
        for queue, keys in found.items():
            for key, count in Counter(keys).items():
                if self.asked.get(key) != queue:
                    raise LawBroken(f"{key} is in {queue} and was sent to {self.asked.get(key)}")
                if count > 1:
                    raise LawBroken(f"{key} is there {count} times")
                if key in self.left:
                    raise LawBroken(f"{key} was completed and is back")
        present = {key for keys in found.values() for key in keys}
        for key in self.acked - self.leaving:
            if key not in present:
                raise LawBroken(f"{key} was acknowledged and is lost")
        for old, new in self.both.items():
            if (old in present) == (new in present) and new not in self.leaving and old in self.acked:
                raise LawBroken(f"of {old} and {new} there must be exactly one")
        self._judge_groups(found.get("grouped", []))

    def _judge_groups(self, keys: list[str]) -> None:
        for group in {key[1] for key in keys}:
            mine = [key[2:] for key in keys if key[1] == group]
            if mine != sorted(mine):
                raise LawBroken(f"group {group} is out of order")
            done = [key[2:] for key in self.left if key.startswith("g" + group)]
            if done and max(done) > mine[0]:
                raise LawBroken(f"{max(done)} of group {group} was completed before {mine[0]}")
