"""The actor, the request and the client of writing transactions, for the audit log."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token

_PLAIN = re.compile(r"[A-Za-z0-9 .:_-]*", re.ASCII)
#: The actor, the id of the request, and the address of the client.
_acting: ContextVar[tuple[str, str, str]] = ContextVar("acting", default=("background", "", ""))


def set_actor(actor: str, request_id: str, client: str = "") -> Token[tuple[str, str, str]]:
    """Set the actor in the audit log for the present task and those that it starts."""
    if not _PLAIN.fullmatch(actor + request_id + client):
        raise ValueError("the actor, the request id or the address has a forbidden character")
    return _acting.set((actor, request_id, client))


def get_actor() -> dict[str, str]:
    """Return the actor of the present task, as variables of a statement or a template."""
    actor, request_id, client = _acting.get()
    return {"actor": actor, "request_id": request_id, "client_address": client}


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Set the actor for the block and the tasks that it starts."""
    token = set_actor(actor, "")
    try:
        yield
    finally:
        _acting.reset(token)
