"""Which handler a request goes to: the node's own pages by exact path, everything else to the door behind (`fallback`).

/-/healthy   200 while the process runs: restart it when this fails
/-/ready     200 when the node takes messages, 503 before and while it drains: send it no traffic when this fails
/metrics     Prometheus text format
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from .message import Handler, Request, Response, plain

METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
NO_STORE = ((b"cache-control", b"no-store"),)


class Routes:
    """A handler made of handlers. Paths are compared as they were sent; HEAD is answered wherever GET is."""

    def __init__(self, table: Mapping[str, Mapping[str, Handler]], fallback: Handler | None = None) -> None:
        self._table = table
        self._fallback = fallback
        self.root = fallback if "/" not in table else None
        """Answers what is asked of `/`: nearly every request of a door. Whoever opens a door behind another may put it here."""

    def __call__(self, request: Request) -> Response | Awaitable[Response]:
        if request.target == b"/" and self.root is not None:
            return self.root(request)  # The rest of this takes a microsecond.
        methods = self._table.get(request.path)
        if methods is None:
            return self._fallback(request) if self._fallback is not None else plain(404, "nothing is served under this path")
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allow = ", ".join(sorted({*methods, *(("HEAD",) if "GET" in methods else ())}))
            return plain(405, f"use {allow}", ((b"allow", allow.encode()),))
        return handler(request)


def routes(*, ready: Callable[[], bool], metrics: Callable[[], str | Awaitable[bytes]], fallback: Handler | None = None) -> Routes:
    """The pages that every node has, in front of a door."""

    def healthy_page(request: Request) -> Response:
        return Response(200, b"ok\n", headers=NO_STORE)

    def ready_page(request: Request) -> Response:
        return Response(200, b"ready\n", headers=NO_STORE) if ready() else Response(503, b"not ready\n", headers=NO_STORE)

    def metrics_page(request: Request) -> Response | Awaitable[Response]:
        made = metrics()
        return Response(200, made.encode(), METRICS_TYPE) if isinstance(made, str) else later(made)

    async def later(made: Awaitable[bytes]) -> Response:
        return Response(200, await made, METRICS_TYPE)

    return Routes({"/-/healthy": {"GET": healthy_page}, "/-/ready": {"GET": ready_page}, "/metrics": {"GET": metrics_page}}, fallback)
