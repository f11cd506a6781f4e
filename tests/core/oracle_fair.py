"""The oracle's tenants, from the published rule: it remembers every delivery there was, and adds them all up whenever it is asked."""

from __future__ import annotations

from tests.core.oracle_facts import MINUTES_5, Facts, Message, Queue, Span

FLOOR = 30
TEN_SECONDS = 10_000


class Fair(Facts):
    # Deliveries as stretches of time

    def begin_span(self, queue: Queue, message: Message) -> None:
        message.span = Span(message.tenant, self.time, message)
        queue.spans.append(message.span)

    def end_span(self, message: Message) -> None:
        """Its delivery ends now, or ended when it lapsed. To be told before its time changes."""
        if message.span is not None:
            message.span.end = min(message.visible_at, self.time)
            message.span = None

    def window(self) -> int:
        """Thirty buckets of ten seconds, the last of which is under way."""
        return (self.time // TEN_SECONDS - 29) * TEN_SECONDS

    def used(self, queue: Queue, spans: list[Span]) -> int:
        start = max(self.window(), queue.named_since or 0)
        ends = [min(span.message.visible_at, self.time) if span.end is None else span.end for span in spans]
        return sum(max(0, end - max(span.start, start)) for span, end in zip(spans, ends, strict=True))

    # Tenants

    def meet_tenant(self, queue: Queue, message: Message) -> None:
        """A message joins; it is in the list already."""
        if message.tenant:
            if queue.named_since is None:
                queue.named_since = self.time
            if [m.tenant for m in queue.messages].count(message.tenant) == 1:
                queue.noisy.discard(message.tenant)
            queue.last_push[message.tenant] = self.time

    def forget_tenants(self, queue: Queue) -> None:
        queue.named_since, queue.spells_at, queue.spans = None, None, []
        queue.noisy, queue.last_push = set(), {}

    def loud(self, queue: Queue, tenant: bytes, given: list[Message]) -> bool:
        flying = [m for m in queue.messages if self.leased(m) or m in given]
        own = [m for m in flying if m.tenant == tenant]
        if len(own) >= FLOOR and 10 * len(own) > len(flying):
            return True
        spans = [span for span in queue.spans if span.tenant == tenant]
        if sum(span.start >= self.window() for span in spans) < FLOOR:
            return False
        return 10 * self.used(queue, spans) > self.used(queue, queue.spans)

    def end_spells(self, queue: Queue) -> None:
        bucket = self.time // TEN_SECONDS
        if queue.named_since is not None and queue.spells_at != bucket:
            queue.spells_at = bucket
            for tenant in sorted(queue.noisy):
                if self.time - queue.last_push[tenant] >= MINUTES_5 and not self.loud(queue, tenant, []):
                    queue.noisy.discard(tenant)

    def fairest(self, queue: Queue, free: list[Message], given: list[Message]) -> Message:
        """Which of the visible is next."""
        for message in free:
            if message.tenant not in queue.noisy:
                if not message.tenant or not self.loud(queue, message.tenant, given):
                    return message
                queue.noisy.add(message.tenant)

        def turn(message: Message) -> tuple[int, int]:
            return sum(m.tenant == message.tenant and (self.leased(m) or m in given) for m in queue.messages), message.sequence

        return min(free, key=turn)
