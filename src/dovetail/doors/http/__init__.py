"""The HTTP/1.1 edge that every protocol over HTTP shares. It knows requests and answers and nothing of queues.

server = Server(routes(ready=…, metrics=…, fallback=door.handle))
await server.listen("127.0.0.1", 9324)
…
await server.drain(10.0)
"""

from __future__ import annotations

from .bounds import Bounds
from .message import Handler, Request, Response, plain
from .routes import Routes, routes
from .server import Server

__all__ = ["Bounds", "Handler", "Request", "Response", "Routes", "Server", "plain", "routes"]
