"""docs/promises.md is a table of promise, test and stores; each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "promises.md"


def test_every_test_that_the_promises_name_exists() -> None:
    if not PAGE.exists():
        pytest.skip("docs/promises.md is not written yet")
    named = set(re.findall(r"\btest_[a-z0-9_]+\b(?!\.py)", PAGE.read_text(encoding="utf-8")))
    assert named, "the page names no test"
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_[a-z0-9_]+)\(", file.read_text(encoding="utf-8"))
    }
    assert named - defined == set()
