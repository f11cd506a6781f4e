"""The SQS door: unmodified AWS clients, durable queues. `Door.handle` answers a request of the HTTP edge.

shapes, errors             what goes in and out, declared once
jsonwire, querywire        the two protocols: bytes in, shapes out, and back
content, queueattributes   the rules of messages and of queues
messages, queues, deadletters, tags, permissions      the 23 actions, each a function of its own name
sigv4, policy, calls       who calls, and what they may do
cooldowns, orphans         the two 60-second rules · dead-letter queues that come back
queuefile                  queues from a file
actions, door              the table of actions · puts them together
fast                       the short way for plain single calls; whatever is not plain goes the long way
"""

from __future__ import annotations

from dovetail.doors.sqs.door import Door, Options

__all__ = ["Door", "Options"]
