"""The log of the server on stderr: lines for people, or one JSON object per line."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from mulligan.service.server.telemetry.log_lines import log_line

LOGGER = "mulligan.server"


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = f"{datetime.fromtimestamp(record.created):%H:%M:%S} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class _Json(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        return log_line(
            record.getMessage(),
            record.levelname.lower(),
            datetime.fromtimestamp(record.created, UTC),
            process=self._process,
            exception=self.formatException(record.exc_info) if record.exc_info else "",
        )


def start_log(log_format: str, process: str = "server") -> logging.Logger:
    """Write what is logged to stderr, in one of the formats `text` and `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(process) if log_format == "json" else _Text())
    logger = logging.getLogger(LOGGER)
    for one in (logger, logging.getLogger("uvicorn.error")):
        one.handlers = [handler]
        one.propagate = False
    logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return logger
