"""Which Spark will do. Older ones are refused by name, before they fail in a way that nobody understands."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from dovetail.errors import BadRequest

LEAST = (4, 2)


def complaint(found: str | None) -> str | None:
    """What is wrong with this version of pyspark (None: there is none), or None where it will do."""
    if found is None:
        return "pyspark is not installed: pip install 'dovetail[spark]'"
    if tuple(int(part) for part in found.split(".")[:2] if part.isdecimal()) < LEAST:
        return (
            f'pyspark {found} is too old for format("dovetail"): 4.2 is the first in which a Python source can limit what a batch reads and'
            " knows its latest offset. Upgrade it, or read the Parquet files that `dovetail export` writes with the Spark"
            " that you have"
        )
    return None


def installed() -> str | None:
    for name in ("pyspark", "pyspark-client"):
        try:
            return version(name)
        except PackageNotFoundError:
            pass
    return None


def require() -> None:
    wrong = complaint(installed())
    if wrong is not None:
        raise BadRequest(wrong)
