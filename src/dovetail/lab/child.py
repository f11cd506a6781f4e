"""A case in a process of its own: its memory is its own, nothing of the case before lingers in it, and it can be killed.

    python -m dovetail.lab.child MODULE:FUNCTION JSON

The function gets the JSON's keys as arguments and returns something JSON can say (or a coroutine of it, run on uvloop). Each line that a
child tells is one JSON object on stdout: {"told": …} while it runs, {"result": …} at its end. It shares nothing else with its parent.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

LINE_BYTES_MAX = 1 << 24


class ChildFailed(Exception):
    """A case ended without a result; its own words are on stderr."""


def tell(value: Any) -> None:
    """In a child: let the parent know."""
    print(json.dumps({"told": value}), flush=True)


class Child:
    """The parent's side. `async with Child("module:function", {...}) as child`; whatever happens it does not outlive the block."""

    def __init__(self, function: str, arguments: dict[str, Any]) -> None:
        self._function = function
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Child:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dovetail.lab.child",
            self._function,
            json.dumps(self._arguments),
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        assert self._process is not None
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                pass
            await self._process.wait()

    async def lines(self) -> AsyncIterator[tuple[str, Any]]:
        """("told", value) … and at last ("result", value)."""
        assert self._process is not None and self._process.stdout is not None
        async for line in self._process.stdout:
            ((kind, value),) = json.loads(line).items()
            yield kind, value
            if kind == "result":
                return
        raise ChildFailed(f"{self._function} ended without a result")

    async def told(self) -> Any:
        """The next thing that it tells."""
        async for _, value in self.lines():
            return value
        raise ChildFailed(f"{self._function} ended without a word")


async def result_of(function: str, **arguments: Any) -> Any:
    """Run a case in a child and return its result."""
    async with Child(function, arguments) as child:
        async for kind, value in child.lines():
            if kind == "result":
                return value
    raise ChildFailed(f"{function} ended without a result")


def main(function: str, arguments: str) -> None:
    module, _, name = function.partition(":")
    answer = getattr(import_module(module), name)(**json.loads(arguments))
    if inspect.iscoroutine(answer):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            answer = runner.run(answer)
    print(json.dumps({"result": answer}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
