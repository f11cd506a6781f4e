"""The SQS door: unmodified AWS clients, durable queues. `Door.handle` answers a request of the HTTP edge.

shapes, errors             what goes in and out, declared once
jsonwire, querywire        the two protocols: bytes in, shapes out, and back
content, queueattributes   the rules of messages and of queues
messages, queues, deadletters, tags, permissions      the 23 actions, each a function of its own name
sigv4, policy, calls       who calls, and what they may do
door                       puts them together
"""

from __future__ import annotations

from dovetail.doors.sqs.door import Door, Options

__all__ = ["Door", "Options"]
