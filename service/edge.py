"""Below the application: what never becomes a request of it is answered in our shape, and echoed nowhere.

aiohttp answers a head that it cannot parse by itself, quotes the line at fault, which may be the one with
the key, and logs it.
"""

import logging
import secrets

from aiohttp import web

from service import wire

log = logging.getLogger(__name__)

NOT_HTTP = "The request is not one that HTTP allows, or its head is too large."
INTERNAL = "Internal server error"


class Runner(web.AppRunner):
    """An AppRunner whose connections answer and log in our way.

    A compressed body, which is refused, is not inflated either: a small one can hold up everything.
    """

    __slots__ = ()

    def __init__(self, app, **options):
        super().__init__(app, access_log=None, auto_decompress=False, **options)

    async def _make_server(self):
        server = await super()._make_server()
        server.__class__ = _Server
        return server


class _Server(web.Server):
    def __call__(self):
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(self, request, status=500, exc=None, message=None):
        """The response to a head or a body that breaks HTTP; the connection is closed after it."""
        self.log_exception("request refused", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("The response has begun; the connection is broken off.")
        wording = INTERNAL if status >= 500 else NOT_HTTP
        response = wire.answer({"message": wording}, status, {"X-Request-Id": secrets.token_hex(12)})
        response.force_close()
        return response

    def log_exception(self, *args, **kw):
        """The kind of fault alone: messages of the parser quote what was sent."""
        fault = kw.get("exc_info")
        log.warning("a connection was broken off: %s", type(fault).__name__ if fault else args[0])
