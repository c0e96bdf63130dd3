"""Access to the database for a request: its actor, the rows of its company, shared tables."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from zoneinfo import ZoneInfo

from aiohttp import web

from service.db.connections import Connection
from service.db.statements import Run, Statement
from service.db.transactions import set_actor
from service.http import app_keys
from service.http.client_address import SENDER

_Result = TypeVar("_Result")


def identify(request: web.Request, actor: str) -> None:
    """Set the actor of a request, with the request's id and the address of its client."""
    set_actor(actor, request[app_keys.REQUEST_ID], request[SENDER].text or "")


def zone_of(request: web.Request) -> ZoneInfo:
    """Return the business time zone."""
    return request.app[app_keys.CONFIG].time_zone


@asynccontextmanager
async def company_transaction(request: web.Request) -> AsyncIterator[Connection]:
    """Open a transaction of the request's company.

    Raises Forbidden if the person who makes the request has lost the role meanwhile.
    """
    async with request.app[app_keys.DATABASE].company(request[app_keys.COMPANY]) as conn:
        if app_keys.CHECK_ROLE in request:
            await request[app_keys.CHECK_ROLE](conn)
        yield conn


def run_shared(
    request: web.Request, work: Callable[..., Awaitable[_Result]], **values: object
) -> Awaitable[_Result]:
    """Return the result of a statement or of `work` without a company: on people or links."""
    return request.app[app_keys.DATABASE].call(work, **values)


def read_own(request: web.Request, statement: Statement, **values: object) -> Run:
    """Run a statement that reads rows of the request's company. Raises Unavailable."""
    company = request[app_keys.COMPANY]
    return request.app[app_keys.READS].read(statement, company_id=company, **values)


def read_own_with(
    request: web.Request, work: Callable[[Connection], Awaitable[_Result]]
) -> Awaitable[_Result]:
    """Run `work` in a read-only transaction of the request's company, perhaps twice."""
    return request.app[app_keys.READS].read_with(request[app_keys.COMPANY], work)
