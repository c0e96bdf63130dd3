"""Who makes a request, for the audit log and the log line."""

from aiohttp import web

from service.db.audit_actor import set_actor
from service.http import app_keys
from service.http.client_address import SENDER


def identify(request: web.Request, actor: str) -> None:
    """Set the actor of a request, with the request's id and the address of its client."""
    set_actor(actor, request[app_keys.REQUEST_ID], request[SENDER].text or "")
