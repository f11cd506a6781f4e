"""ElasticMQ as a peer: the SQS stand-in that people use, in memory, on a free port of the loopback.

Its jars come from Maven (jars.py); a few lines of Java start it:

    CACHE/elasticmq-1.7.1/    pom.xml · logback.xml · Peer.java · Peer.class · libs/*.jar

`python -m dovetail.lab.drivers.elasticmq` fetches it and says where it lies. It needs about 30 s of load before its figures are fair.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

from .. import jars
from ..driver import PeerMissing
from ..scenario import Lab
from .sqs import NotReady, end, ready_port

VERSION = "1.7.1"
WARM_S = 30.0

_POM = jars.pom(f"org.elasticmq:elasticmq-rest-sqs_2.13:{VERSION}", "ch.qos.logback:logback-classic:1.5.18")
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
    return jars.cached(f"elasticmq-{VERSION}")


def present() -> bool:
    """It was fetched already and there is a Java to run it."""
    return folder().is_dir() and shutil.which("java") is not None


def fetch() -> Path:
    """Resolve it, unless it is there."""
    files = {"logback.xml": _LOGBACK, "Peer.java": _PEER}
    return jars.fetch("ElasticMQ", folder().name, _POM, files, ["Peer.java"])


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
