"""`python -m dovetail` is the command `dovetail`."""

from __future__ import annotations

import sys

from .cli import main

sys.exit(main())
