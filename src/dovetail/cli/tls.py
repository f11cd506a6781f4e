"""The certificate of the HTTP door, and how a new one takes effect without a restart: connections that are made from then on have it."""

from __future__ import annotations

import logging
import os
import ssl

from ..errors import BadRequest
from ..settings import Tls

log = logging.getLogger("dovetail.serve")


class Certificate:
    def __init__(self, settings: Tls, context: ssl.SSLContext) -> None:
        self.context = context
        self._settings = settings
        self._seen = self._stamps()

    @classmethod
    def load(cls, settings: Tls) -> Certificate | None:
        """None where no certificate is set."""
        if not settings.cert and not settings.key:
            return None
        if not settings.cert or not settings.key:
            raise BadRequest("--tls-cert and --tls-key belong together")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(settings.cert, settings.key)
        except (OSError, ssl.SSLError) as error:
            raise BadRequest(f"--tls-cert {settings.cert}: cannot be used: {error}") from None
        return cls(settings, context)

    def reload_if_changed(self) -> None:
        """A pair that cannot be used is told and left alone: the old one goes on."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            # A trial of its own: a file without its key would leave the one in use half changed.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._settings.cert, self._settings.key)
            self.context.load_cert_chain(self._settings.cert, self._settings.key)
        except (OSError, ssl.SSLError) as error:
            log.error("the new certificate cannot be used, the old one stays: %s", error)
        else:
            log.info("a new certificate is in use")

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        found = []
        for path in (self._settings.cert, self._settings.key):
            try:
                status = os.stat(path)
                found.append((status.st_mtime_ns, status.st_ino))
            except OSError:
                found.append((0, 0))
        return tuple(found)
