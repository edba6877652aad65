"""The log on stderr: as text for people, or as one JSON object per line for machines."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime

FORMATS = ("text", "json")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
CALL: ContextVar[str] = ContextVar("call", default="")  # the id of the call or stream that this work belongs to
_ORDINARY = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime", "taskName"}


def log_to_stderr(level: str, form: str) -> None:
    """Log everything from this level on, in one of FORMATS."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class JsonLines(logging.Formatter):
    """Time, level, logger and message, the id of the call, and the fields that the code added, such as claim_uid."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if call := CALL.get():
            line["call"] = call
        line |= {name: value for name, value in vars(record).items() if name not in _ORDINARY}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
