"""POST /connect/token, and the authentication of requests by bearer token. Portal: 2"""

import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl

from .answers import Body, login_refusal, refusal
from .controls import Call, Sandbox
from .database import Row
from .document import well_formed_tin
from .settings import Client, Identity, Taxpayer

SCOPE = "InvoicingAPI"
FORM = "application/x-www-form-urlencoded"


def log_in(call: Call) -> Body:
    """Issue a token for the client's own taxpayer, or for the one in `onbehalfof`.

    Raises Refusal.
    """
    sandbox = call.sandbox
    client = check_client(sandbox, read_form(call))
    tin, number = read_taxpayer(client, call.request.headers.get("onbehalfof"))
    taxpayer = sandbox.state.taxpayers.setdefault(tin, Taxpayer(tin))
    if number:
        taxpayer.identities.add(Identity("BRN", number))
    sandbox.save()
    token = secrets.token_urlsafe(48)
    sandbox.db.token_insert(
        token=token,
        client_id=client.client_id,
        taxpayer=tin,
        represented="onbehalfof" in call.request.headers,
        expires_at=sandbox.now() + sandbox.controls.token_seconds,
    )
    seconds = int(sandbox.controls.token_seconds)
    return {"access_token": token, "expires_in": seconds, "token_type": "Bearer", "scope": SCOPE}


def read_form(call: Call) -> Mapping[str, str]:
    """Return the fields of the form, none for a body of another content type.

    Raises Refusal for another charset than UTF-8: with some, decoding takes minutes.
    """
    if call.request.content_type != FORM:
        return {}
    if (call.request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
        raise login_refusal("invalid_request", "The charset must be UTF-8.")
    return dict(parse_qsl(call.body.decode().rstrip(), keep_blank_values=True))


def check_client(sandbox: Sandbox, form: Mapping[str, str]) -> Client:
    """Return the client after the checks in the portal's order. Portal: 2.2"""
    if form.get("grant_type", "client_credentials") != "client_credentials":
        raise login_refusal("unsupported_grant_type", "The grant type is not supported.")
    for field in ("grant_type", "client_id", "client_secret"):
        if not form.get(field):
            raise login_refusal("invalid_request", f"{field} is required.")
    client = sandbox.state.clients.get(form["client_id"])
    if client is None or not secrets.compare_digest(
        client.client_secret.encode(), form["client_secret"].encode()
    ):
        raise login_refusal("invalid_client", "The client or its secret is not known.")
    if client.blocked:
        raise login_refusal("invalid_client", "User blocked")
    if form.get("scope", SCOPE) not in ("", SCOPE):
        raise login_refusal("invalid_scope", "The scope is not known.")
    return client


def read_taxpayer(client: Client, header: str | None) -> tuple[str, str | None]:
    """Return the TIN of `onbehalfof`, or of the client, and a business registration number.

    Raises Refusal. Portal: 2.1
    """
    if header is None:
        return client.tin, None
    tin, _, number = (part.strip() for part in header.partition(":"))
    if not well_formed_tin(tin):
        raise login_refusal("invalid_request", "onbehalfof is not a TIN.")
    if not may_act_for(client, tin):
        raise login_refusal("unauthorized_client", f"The client may not act for {tin}.")
    return tin, number or None


def may_act_for(client: Client, tin: str) -> bool:
    """Return whether a client is an intermediary that represents the taxpayer."""
    return client.intermediary and (client.represents is None or tin in client.represents)


def authenticate(call: Call) -> Row:
    """Return the row of the bearer token: client_id, taxpayer, represented.

    Raises Refusal 401.
    """
    sandbox = call.sandbox
    scheme, _, token = call.request.headers.get("Authorization", "").partition(" ")
    caller = sandbox.db.token_get(token=token.strip(), now=sandbox.now())
    if scheme.lower() != "bearer" or caller is None:
        message = "The access token is missing, not known or expired."
        raise refusal(401, "Unauthorized", message)
    return caller
