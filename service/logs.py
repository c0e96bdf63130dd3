"""The form of log lines: text, or one JSON object in each line.

Lines that are logged during a request have its id, and its trace id if the client has sent one. So
have the lines of tasks that the request has started, such as its submission.
"""

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType

JSON = "json"  # of LOG_FORMAT
TEXT_FORMAT = "%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"
#: Version 00 of W3C Trace Context. Later versions may have further parts.
_TRACEPARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}"
    r"-[0-9a-f]{2}(?P<rest>-.*)?",
    re.ASCII,
)
_NEEDS_QUOTES = re.compile(r'[\s"=]|^$')

#: The id of the request, and its trace id or an empty text.
_request: ContextVar[tuple[str, str]] = ContextVar("request", default=("", ""))

log = logging.getLogger(__name__)


def set_request(request_id: str, trace_id: str) -> None:
    """Set the request of the log lines of this task and of those that it starts."""
    _request.set((request_id, trace_id))


def read_trace_id(header: str | None) -> str:
    """Return the trace id of a header `traceparent`, or an empty text for an invalid one."""
    found = _TRACEPARENT.fullmatch(header) if header else None
    if found is None or (found["version"] == "00" and found["rest"]):
        return ""
    return found["trace"]


def fields(**values: object) -> dict[str, dict[str, object]]:
    """Return the argument `extra` of a log call whose line has further fields."""
    return {"fields": values}


class TextFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line, with the request before the message and the fields after it."""
        first, last = _write_pairs(_request_fields()), _write_pairs(getattr(record, "fields", {}))
        record.message = " ".join([*first, record.message, *last])
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_request_fields(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str, separators=(",", ":"))


def configure(level: str, log_format: str) -> None:
    """Log to stderr. With JSON, uncaught errors and warnings of Python are log lines too."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == JSON else TextFormatter(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    if log_format == JSON:
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = lambda args: _log_uncaught(
            args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback
        )


def is_json() -> bool:
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.root.handlers)


def _quote(value: object) -> str:
    """Return a value for a line of text, in quotes if it has white space."""
    text = str(value)
    return json.dumps(text) if _NEEDS_QUOTES.search(text) else text


def _request_fields() -> dict[str, str]:
    request_id, trace_id = _request.get()
    known = {"request_id": request_id, "trace_id": trace_id}
    return {name: text for name, text in known.items() if text}


def _write_pairs(values: Mapping[str, object]) -> Iterator[str]:
    """Yield `name=value` of each field. An object is replaced by its own pairs."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _write_pairs(value)
        else:
            yield f"{name}={_quote(value)}"


def _log_uncaught(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    log.critical("uncaught error", exc_info=(kind, error, traceback))
