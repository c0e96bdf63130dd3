"""The log line of each response, in the form of the other log lines."""

import asyncio
import logging
import sys
import time
from typing import NamedTuple

from service import logs

NAME = "service.requests"

log = logging.getLogger(NAME)


class Response(NamedTuple):
    """The fields of a log line. Company, account, key, client and trace can be unknown."""

    request_id: str
    method: str
    route: str
    status: int
    ms: float
    company: int | None
    account: int | None
    key: str | None
    client: str | None
    trace_id: str


class AccessLog:
    """Writes the lines of one round of the event loop together.

    The lines of a process that is killed in the middle of a round are lost.
    """

    def __init__(self, log_format: str) -> None:
        is_json = log_format == logs.JSON
        self._render = self._render_json if is_json else self._render_text
        # As the formatters of logging write the time: JSON in UTC, text in local time.
        self._form = "%Y-%m-%dT%H:%M:%S." if is_json else "%Y-%m-%d %H:%M:%S,"
        self._convert = time.gmtime if is_json else time.localtime
        self._responses: list[Response] = []

    def add(self, response: Response) -> None:
        """Add a line, if the log level allows it."""
        if not log.isEnabledFor(logging.INFO):
            return
        if not self._responses:
            asyncio.get_running_loop().call_soon(self.write)
        self._responses.append(response)

    def write(self) -> None:
        """Write the lines to stderr, with the present time."""
        second, fraction = divmod(time.time(), 1)
        now = f"{time.strftime(self._form, self._convert(second))}{int(fraction * 1000):03d}"
        responses, self._responses = self._responses, []
        sys.stderr.write("".join([self._render(now, response) for response in responses]))
        sys.stderr.flush()

    @staticmethod
    def _render_text(now: str, response: Response) -> str:
        """Return a line of pairs. Unknown fields are `-`, except the trace id."""
        request_id, method, route, status, ms, company, account, key, client, trace = response
        return (
            f"{now} level=INFO logger={NAME} request_id={request_id} method={method} "
            f"route={route} status={status} ms={ms:.1f} company={company or '-'} "
            f"account={account or '-'} key={key or '-'} client={client or '-'}"
            f"{trace and ' trace_id='}{trace}\n"
        )

    @staticmethod
    def _render_json(now: str, response: Response) -> str:
        """Return a line with a JSON object, without unknown fields.

        No field has a character that JSON escapes, so that the line is not made by an encoder.
        """
        request_id, method, route, status, ms, company, account, key, client, trace = response
        more = f',"company":{company}' if company else ""
        if account:
            more += f',"account":{account}'
        if key:
            more += f',"key":"{key}"'
        if client:
            more += f',"client":"{client}"'
        if trace:
            more += f',"trace_id":"{trace}"'
        return (
            f'{{"time":"{now}Z","level":"INFO","logger":"{NAME}",'
            f'"message":"request","request_id":"{request_id}","method":"{method}",'
            f'"route":"{route}","status":{status},"ms":{ms:.1f}{more}}}\n'
        )
