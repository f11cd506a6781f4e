"""Since which apply version apply does what. A log begins at 1 and goes on when its writers can follow (docs/format-entry.md): what is
newer than the log is refused, so that all who replay it make the same state of it.
"""

from __future__ import annotations

FAIR_VERSION = 2
"""From here on a name in a lane without groups is a tenant; before, it meant nothing."""
STAGES_VERSION = 3
"""From here on there are stages and reservations; before, their operations are refused."""
FACTS_VERSION = 4
"""From here on there are facts taps; before, their operations are refused."""
WAITING_VERSION = 5
"""From here on a waiting receiver may take only once, and may withdraw; before, `once` meant nothing and a Withdraw is refused."""
MOVES_VERSION = 6
"""From here on a namespace may have several logs, and messages move between them; before, the operations for it are refused."""
APPLY_VERSION = 6
"""What this node speaks."""
