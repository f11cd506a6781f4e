"""A real node in a process of its own, as its clients meet it: an address, and a process that can be killed. It knows no client."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from dovetail.lab.drivers.spawned import free_ports

ROOT = Path(__file__).resolve().parent.parent.parent
READY = re.compile(r"dovetail ready http=(https?)://(\S+):(\d+) native=off\n")
STOP_S = 60.0


class NotStarted(AssertionError):
    """The node ended before it was ready."""

    def __init__(self, code: int, errors: str) -> None:
        super().__init__(f"it ended with {code}:\n{errors}")
        self.code = code
        self.errors = errors


class Node:
    """`dovetail serve` with the flags given. Every start takes the same port."""

    def __init__(self, folder: Path, *flags: str, address: str = "127.0.0.1", environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.flags = flags
        self.address = address
        (self.port,) = free_ports(1)
        self.scheme = "http"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(("DOVETAIL_", "AWS_"))}
        self._environment |= {"PYTHONPATH": str(ROOT / "src"), **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._listener: threading.Thread | None = None

    def start(self) -> Node:
        command = [sys.executable, "-m", "dovetail", "serve", "--http", f"{self.address}:{self.port}", "--native", "off", *self.flags]
        pipe = subprocess.PIPE
        self._process = process = subprocess.Popen(
            command, cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )
        self._lines = []
        self._listener = threading.Thread(target=self._listen, args=(process,), daemon=True)
        self._listener.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        match = READY.fullmatch(line)
        if match is None:
            code = process.wait(STOP_S)
            self._forget()
            raise NotStarted(code, self.errors)
        self.scheme, self.port = match[1], int(match[3])
        return self

    def _listen(self, process: subprocess.Popen[str]) -> None:
        # A pipe that nobody reads would make the node wait once it is full.
        assert process.stderr is not None
        for line in process.stderr:
            self._lines.append(line)

    @property
    def url(self) -> str:
        return self.url_at("127.0.0.1")

    def url_at(self, host: str) -> str:
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def errors(self) -> str:
        """What it wrote to stderr so far."""
        return "".join(self._lines)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9: nothing is written, nobody is told."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def stop(self) -> int:
        """SIGTERM, as an operator stops it; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(STOP_S)
        self._forget()
        return code

    def _forget(self) -> None:
        assert self._process is not None and self._listener is not None
        self._listener.join(STOP_S)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        self._process = None

    def memory_kib(self, name: str = "VmRSS") -> int:
        """VmRSS is what it holds now, VmHWM the most it ever held."""
        match = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert match is not None
        return int(match[1])

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def __enter__(self) -> Node:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
