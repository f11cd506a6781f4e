"""ElasticMQ as a peer: the SQS stand-in that people use, in memory, on a free port of the loopback.

Its jars are resolved by Maven, as Maven is set up here, into a cache folder beside nothing of ours; a few lines of Java start it:

    CACHE/elasticmq-1.7.1/    pom.xml · logback.xml · Peer.java · Peer.class · libs/*.jar

`python -m dovetail.lab.drivers.elasticmq` fetches it and says where it lies. Without Java or Maven, or where the jars cannot be had, it is
a PeerMissing with the reason. It needs about 30 s of load before its figures are fair.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ..driver import PeerMissing
from ..scenario import Lab
from .sqs import NotReady, end, ready_port

VERSION = "1.7.1"
CACHE_ENVIRONMENT = "DOVETAIL_LAB_CACHE"
"""Where peers that are fetched lie; ~/.cache/dovetail unless it is set."""
WARM_S = 30.0
_FETCH_S = 600

_POM = f"""\
<project><modelVersion>4.0.0</modelVersion>
<groupId>dovetail.lab</groupId><artifactId>elasticmq</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.elasticmq</groupId><artifactId>elasticmq-rest-sqs_2.13</artifactId><version>{VERSION}</version></dependency>
<dependency><groupId>ch.qos.logback</groupId><artifactId>logback-classic</artifactId><version>1.5.18</version></dependency>
</dependencies></project>
"""
_LOGBACK = '<configuration><root level="OFF"/></configuration>\n'
_PEER = """\
public class Peer {
  public static void main(String[] arguments) throws Exception {
    var server = org.elasticmq.rest.sqs.SQSRestServerBuilder.withInterface("127.0.0.1").withPort(0).start();
    System.out.println("ready " + server.waitUntilStarted().localAddress().getPort());
    Thread.currentThread().join();
  }
}
"""
_READY = re.compile(rb"ready (\d+)")


def folder() -> Path:
    cache = os.environ.get(CACHE_ENVIRONMENT)
    return (Path(cache) if cache else Path.home() / ".cache" / "dovetail") / f"elasticmq-{VERSION}"


def present() -> bool:
    """It was fetched already and there is a Java to run it."""
    return folder().is_dir() and shutil.which("java") is not None


def fetch() -> Path:
    """Resolve it, unless it is there; a folder appears under its name only when it is whole."""
    place = folder()
    if place.is_dir():
        return place
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            raise PeerMissing(f"ElasticMQ needs {program}, which is not installed (apt-get install default-jdk-headless maven)")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="elasticmq-", dir=place.parent) as unfinished:
        made = Path(unfinished) / "made"
        made.mkdir()
        for name, text in (("pom.xml", _POM), ("logback.xml", _LOGBACK), ("Peer.java", _PEER)):
            (made / name).write_text(text)
        _run(made, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs")
        _run(made, "javac", "-cp", "libs/*", "Peer.java")
        try:
            made.rename(place)
        except OSError:
            if not place.is_dir():  # Somebody else was faster; theirs is as good.
                raise
    return place


def _run(place: Path, *command: str) -> None:
    try:
        subprocess.run(command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FETCH_S, check=True)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"ElasticMQ: {command[0]} took longer than {_FETCH_S} s") from None
    except subprocess.CalledProcessError as error:
        told = (error.stdout + error.stderr).strip().splitlines()
        raise PeerMissing(f"ElasticMQ: {command[0]} failed: {told[0] if told else f'exit code {error.returncode}'}") from None


class ElasticMq:
    name = "elasticmq"

    def __init__(self) -> None:
        self.port = 0
        self.process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    async def start(self) -> str:
        place = await asyncio.get_running_loop().run_in_executor(None, fetch)
        if shutil.which("java") is None:
            raise PeerMissing("ElasticMQ needs java, which is not installed (apt-get install default-jre-headless)")
        options = (f"-Dlogback.configurationFile={place}/logback.xml", "-cp", f"{place}/libs/*{os.pathsep}{place}", "Peer")
        self.process = await asyncio.create_subprocess_exec("java", *options, stdout=asyncio.subprocess.PIPE)
        try:
            self.port = await ready_port(self, _READY)
        except NotReady as error:
            raise PeerMissing(str(error)) from None
        return VERSION

    async def stop(self) -> None:
        await end(self.process)
        self.process = None


async def beside(lab: Lab) -> ElasticMq | None:
    """Started, for a scenario that measures it beside us; None, with a line that says why, where it cannot be had. A quick run fetches
    nothing."""
    server = ElasticMq()
    try:
        if lab.quick and not present():
            raise PeerMissing("ElasticMQ was not fetched yet, and a quick run does not: python -m dovetail.lab.drivers.elasticmq")
        lab.peers[server.name] = await server.start()
    except PeerMissing as missing:
        lab.say(str(missing))
        return None
    return server


if __name__ == "__main__":
    try:
        print(f"ElasticMQ {VERSION} lies in {fetch()}")
    except PeerMissing as missing:
        print(missing, file=sys.stderr)
        sys.exit(1)
