"""The log line of each response, in the form of the other log lines."""

import asyncio
import logging
import sys
import time

from aiohttp import web

from service import json_codec, logs
from service.http import app_keys
from service.http.client_address import SENDER

NAME = "service.requests"
#: A line of text after its time.
_TEXT = (
    f" level=INFO logger={NAME} request_id=%(request_id)s method=%(method)s route=%(route)s "
    "status=%(status)d ms=%(ms)s company=%(company)s account=%(account)s key=%(key)s "
    "client=%(client)s"
)

log = logging.getLogger(NAME)


class AccessLog:
    """Writes the lines of one round of the event loop together.

    The lines of a process that is killed in the middle of a round are lost.
    """

    def __init__(self, log_format: str) -> None:
        self._is_json = log_format == logs.JSON
        # As the formatters of logging write the time: JSON in UTC, text in local time.
        self._form = '{"time":"%Y-%m-%dT%H:%M:%S.' if self._is_json else "%Y-%m-%d %H:%M:%S,"
        self._convert = time.gmtime if self._is_json else time.localtime
        self._lines: list[str] = []  # without their time

    def add(
        self, request: web.Request, route: str, status: int, seconds: float, trace_id: str
    ) -> None:
        """Add a line, if the log level allows it."""
        if not log.isEnabledFor(logging.INFO):
            return
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.write)
        unknown = None if self._is_json else "-"
        fields: dict[str, object] = {
            "request_id": request[app_keys.REQUEST_ID],
            "method": request.method if request.method.isalpha() else "?",
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 1),
            "company": request.get(app_keys.COMPANY, unknown),
            "account": request.get(app_keys.ACCOUNT, unknown),
            "key": request.get(app_keys.KEY_ID, unknown),
            "client": request[SENDER].text or unknown,
        }
        if self._is_json:
            fields["trace_id"] = trace_id or None
            self._lines.append(_render_json(fields))
        else:
            self._lines.append(f"{_TEXT % fields}{trace_id and ' trace_id='}{trace_id}\n")

    def write(self) -> None:
        """Write the lines to stderr, with the present time."""
        second, fraction = divmod(time.time(), 1)
        now = f"{time.strftime(self._form, self._convert(second))}{int(fraction * 1000):03d}"
        lines, self._lines = self._lines, []
        sys.stderr.write("".join([f"{now}{line}" for line in lines]))
        sys.stderr.flush()


ACCESS_LOG = web.AppKey("access_log", AccessLog)


def _render_json(fields: dict[str, object]) -> str:
    """Return the rest of a JSON object that begins with the time, without unknown fields."""
    known = {name: value for name, value in fields.items() if value is not None}
    first = f'Z","level":"INFO","logger":"{NAME}","message":"request",'
    return f"{first}{json_codec.encode(known)[1:].decode()}\n"
