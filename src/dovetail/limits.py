"""Every limit, once, with the relations between them asserted. A value is checked where it is made, so that all doors share it."""

from __future__ import annotations

BODY_BYTES_MAX = 1024 * 1024
"""One message's body together with its attributes."""

ATTRIBUTES_MAX = 64
ATTRIBUTE_NAME_BYTES_MAX = 256
ATTRIBUTES_BYTES_MAX = BODY_BYTES_MAX + 8 * 1024
"""As they are kept: with lengths between them, and with what a door keeps beside a sender's own."""

MESSAGE_BYTES_MAX = ATTRIBUTES_BYTES_MAX
"""A body and its attributes as they are kept; a door counts what the sender gave and allows BODY_BYTES_MAX of that."""

BATCH_MESSAGES_MAX = 10_000
"""Messages in one push, receive or settle."""

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Bytes in one send call; the store cuts it into entries."""

ENTRY_BYTES_TARGET = 256 * 1024
"""Operations are coalesced into one entry up to this size."""

ENTRY_BYTES_MIN = BODY_BYTES_MAX + 64 * 1024
"""The least that an engine must take in one entry, so that the largest legal message passes on every store."""

SEGMENT_BYTES_DEFAULT = 64 * 1024 * 1024
SEGMENT_BYTES_MIN = 2 * 1024 * 1024

QUEUE_NAME_BYTES_MAX = 256
QUEUE_EXTRA_CHARS_MAX = 512 * 1024
"""What a door keeps with a queue beside its rules: texts by texts. SQS's come to half of it at most: 50 tags, every character escaped."""
NAMESPACE_BYTES_MAX = 256
GROUP_BYTES_MAX = 128
TAP_NAME_BYTES_MAX = 128
ATTEMPT_BYTES_MAX = 128
LOGS_MAX = 64
"""Of one namespace."""
QUEUES_PER_PUSH_MAX = 1000
TAPS_PER_QUEUE_MAX = 64
FACTS_TAPS_MAX = 16
"""Of one namespace."""
FACTS_READ_MAX = 8_192
"""Facts in one read: the loop is busy with it for some milliseconds."""
FACTS_MEMORY_BYTES_MAX = 256 << 20
"""Of the facts that a tap keeps on a store where they stay in memory."""
FACTS_BYTES_DEFAULT = 8 << 30
"""Of the facts that a tap keeps where it does not say how many."""
RESERVATION_NAME_BYTES_MAX = 128
RESERVATIONS_PER_QUEUE_MAX = 64
RESERVED_BATCHES_MAX = 1_000
"""Of one reservation, not settled yet: an owner that never settles must not fill the memory with empty batches."""
RESERVE_MESSAGES_MAX = 100_000
"""In one batch of a reservation."""
BATCH_NUMBER_MAX = (1 << 63) - 1
"""Of batches that are published or reserved: jobs number them in 64 bits, with a sign."""
STAGE_NUMBER_MAX = (1 << 32) - 1
"""Records of one stage that are numbered."""

STAGES_OPEN_MAX = 100_000
STAGES_PER_PUBLISH_MAX = 10_000
STAGE_KEPT_MS = 86_400_000
"""A stage that was not published by then is given up."""

BODY_SCHEMA_BYTES_MAX = 1024 * 1024
"""Of an Avro schema or a Protobuf descriptor set that bodies are read with."""

DELAY_MS_MAX = 1 << 43
"""278 years: delays have no limit that anybody meets, only one that keeps the arithmetic in 64 bits."""

LEASE_MS_MAX = 1 << 40
LEASE_MS_DEFAULT = 30_000
WAIT_MS_MAX = 3_600_000

PRODUCER_RESULTS_KEPT = 64
RECEIVES_COUNTED_MAX = 65_535
"""Receive counts saturate here (two bytes a message)."""

IN_FLIGHT_MAX = 1 << 40
SEQUENCE_MAX = 1 << 44
"""Sequences of one lane (the time index keeps them in 44 bits): 55 years at 10,000 messages a second."""

WRITER_SILENCE_MS = 3_000
WRITER_STEP_MS_MAX = 1_000
WRITER_CLOSE_MS = 3_600_000
ATTEMPT_KEPT_MS = 300_000

assert ENTRY_BYTES_TARGET < ENTRY_BYTES_MIN
assert 2 * QUEUE_EXTRA_CHARS_MAX <= ENTRY_BYTES_MIN
assert SEGMENT_BYTES_MIN >= ENTRY_BYTES_MIN + 4096
assert BODY_BYTES_MAX < MESSAGE_BYTES_MAX < BATCH_BYTES_MAX
assert MESSAGE_BYTES_MAX + GROUP_BYTES_MAX + 4096 < ENTRY_BYTES_MIN
assert LEASE_MS_MAX <= DELAY_MS_MAX
