"""The node's log lines on stderr: one line each, for people or for collectors. stdout belongs to the ready line."""

from __future__ import annotations

import json
import logging
import sys
import time

from ..settings import Log


class TextLines(logging.Formatter):
    """`2026-01-31T08:00:00.123Z info dovetail.http text`; a traceback follows indented."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{_instant(record)} {record.levelname.lower()} {record.name} {record.getMessage()}"
        if record.exc_info:
            text += "\n    " + self.formatException(record.exc_info).replace("\n", "\n    ")
        return text


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _instant(record), "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def write_to_stderr(settings: Log) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())


def _instant(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"
