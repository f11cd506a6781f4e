"""`dovetail pipeline` as a command: what it lists, what it refuses, what it does without a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dovetail.cli import main
from dovetail.doors.native.codec import requests
from dovetail.spark.pipelines import PIPELINES
from tests.spark.house import ROOT, Node, bodies
from tests.spark.test_archive import Published, stage


def test_the_list_names_every_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(PIPELINES)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (["nothing"], "there is no pipeline 'nothing'; there are archive, compact, replay, enrich, dead-letters, measure, devices, usage"),
        (["archive", "--queue", "q"], "missing: target"),
        (["replay", "--queue", "q", "--archive", "a", "--source", "s", "--since", "soon"], "'soon' is no time"),
        (["archive", "--queue", "q", "--target", "t", "--mode", "reserve"], "mode reserve and a reservation go together"),
        (["archive", "--queue", "q", "--target", "t", "--mode", "lease"], "mode: tap or reserve, not 'lease'"),
        (
            ["archive", "--queue", "q", "--target", "t", "--mode", "reserve", "--reservation", "r", "--starting", "latest"],
            "starting: not with",
        ),
        (["measure", "--file", "missing.toml"], "No such file"),
        (["measure"], "which operations? Either trace, files that clients wrote, or tap, the facts of a node"),
        (["measure", "--trace", "t", "--every", "5s"], "every: a report that is kept up is one of facts (tap)"),
        (["devices", "--queue", "q", "--target", "t", "--device", "colour"], "'colour' is no field; one is group, queue"),
        (["usage", "--target", "t", "--format", "xls"], "format: parquet or csv, not 'xls'"),
    ],
)
def test_what_is_wrong_is_one_line(node: Node, capsys: pytest.CaptureFixture[str], told: list[str], said: str) -> None:
    node.declare("q")
    if told[0] == "replay":
        told = [*told, "--endpoint", node.endpoint]
    assert main(["pipeline", "run", *told]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_where_there_is_no_spark_a_pipeline_says_how_it_comes() -> None:
    lines = ["import sys", "sys.modules['pyspark'] = None", "from dovetail.cli import main"]
    lines += [f"main(['pipeline', 'run', {name!r}, '--queue', 'q', '--target', 't'])" for name in ("archive", "enrich", "devices")]
    lines += ["main(['pipeline', 'run', 'measure', '--trace', 't'])", "main(['pipeline', 'run', 'usage', '--target', 't'])"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=environment, capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stderr == "dovetail: this needs pyspark, which is not installed: pip install 'dovetail[spark]'\n" * 5


def test_settings_come_from_a_file_and_a_flag_wins(node: Node, queue: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = Published(tmp_path / "archive", "archive")
    stage(sink, 0, {"2026-05-01-12": range(10, 40)})
    sink.publish(0)
    node.declare(queue)
    file = tmp_path / "settings.toml"
    file.write_text(f'archive = "{tmp_path / "archive"}"\nsource = "orders"\nqueue = "elsewhere"\nendpoint = "{node.endpoint}"\n')
    assert main(["pipeline", "run", "replay", "--file", str(file), "--queue", queue]) == 0
    assert capsys.readouterr().out == "30 messages were pushed\n"
    assert list(node.line.ask(requests.Peek(node.declare(queue), 100)).bodies) == bodies(10, 40)


@pytest.mark.slow
def test_a_trace_is_measured_by_spark(spark: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"queue": 1, "kind": kind, "time_ns": n, "payload": n} for n in range(10) for kind in ("acked", "delivered")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trace.parquet")
    assert (
        main(["pipeline", "run", "measure", "--trace", str(tmp_path / "trace.parquet"), "--target", str(tmp_path / "report.parquet")]) == 0
    )
    assert "1: 10 of 10 delivered, lost 0.000%" in capsys.readouterr().out
    assert pq.read_table(tmp_path / "report.parquet")["delivered"].to_pylist() == [10]


@pytest.mark.slow
def test_spark_submit_runs_a_pipeline_in_the_session_that_it_was_told(node: Node, queue: str, tmp_path: Path) -> None:
    import pyspark

    node.push(queue, bodies(0, 100))
    home, source = Path(pyspark.__file__).parent, ROOT / "src"
    local = ["--master", "local[1]", "--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"]
    quiet = ["--conf", "spark.ui.enabled=false", "--conf", "spark.app.name=submitted", "--conf", "spark.log.level=OFF"]
    quiet += ["--driver-java-options", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"]
    told = ["archive", "--endpoint", node.endpoint, "--queue", queue, "--target", str(tmp_path)]
    command = [str(home / "bin" / "spark-submit"), *local, *quiet, str(source / "dovetail" / "spark" / "pipelines" / "__main__.py"), *told]
    environment = {**os.environ, "PYTHONPATH": str(source), "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0 and "batch 0: 100 rows" in done.stdout, done.stdout + done.stderr[-3000:]
    assert sum(pq.read_table(file).num_rows for file in tmp_path.glob("queue=*/hour=*/*.parquet")) == 100
