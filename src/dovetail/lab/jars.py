"""What peers and engines need of Java: jars that Maven resolves, as Maven is set up here, into a cache folder beside nothing of ours.

    CACHE/NAME/    pom.xml · libs/*.jar · whatever else was made there

A folder appears under its name only when it is whole. Without Java or Maven, or where the jars cannot be had, it is a PeerMissing with the
reason.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .driver import PeerMissing

CACHE_ENVIRONMENT = "DOVETAIL_LAB_CACHE"
"""Where peers that are fetched lie; ~/.cache/dovetail unless it is set."""
_FETCH_S = 600
_RESOLVE = ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs", "-DincludeScope=runtime")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def cached(name: str) -> Path:
    cache = os.environ.get(CACHE_ENVIRONMENT)
    return (Path(cache) if cache else Path.home() / ".cache" / "dovetail") / name


def pom(*artifacts: str, alone: bool = False) -> str:
    """What Maven is to resolve: `group:name:version` each, with all that they need, or `alone`."""
    each = []
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        more = _ALONE if alone else ""
        each.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{more}</dependency>\n"
        )
    return (
        "<project><modelVersion>4.0.0</modelVersion>\n<groupId>dovetail.lab</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<packaging>pom</packaging>\n<dependencies>\n{''.join(each)}</dependencies></project>\n"
    )


def fetch(title: str, name: str, wanted: str, files: Mapping[str, str] = {}, compiled: Sequence[str] = ()) -> Path:
    """Resolve `wanted` into the folder of that name, unless it is there; `files` are put beside, and those to be `compiled` are."""
    place = cached(name)
    if place.is_dir():
        return place
    for program in ("java", "javac", "mvn") if compiled else ("java", "mvn"):
        if shutil.which(program) is None:
            raise PeerMissing(f"{title} needs {program}, which is not installed (apt-get install default-jdk-headless maven)")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=place.parent) as unfinished:
        made = Path(unfinished) / "made"
        made.mkdir()
        for file, text in {"pom.xml": wanted, **files}.items():
            (made / file).write_text(text)
        _run(title, made, *_RESOLVE)
        if compiled:
            _run(title, made, "javac", "-cp", "libs/*", *compiled)
        try:
            made.rename(place)
        except OSError:
            if not place.is_dir():  # Somebody else was faster; theirs is as good.
                raise
    return place


def _run(title: str, place: Path, *command: str) -> None:
    try:
        subprocess.run(command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FETCH_S, check=True)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"{title}: {command[0]} took longer than {_FETCH_S} s") from None
    except subprocess.CalledProcessError as error:
        told = _COLOURS.sub("", error.stdout + error.stderr).strip().splitlines()
        raise PeerMissing(f"{title}: {command[0]} failed: {told[0] if told else f'exit code {error.returncode}'}") from None
