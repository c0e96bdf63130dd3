"""People who have signed in to the dashboard of a test's service."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from service.config import Config
from tests.conftest import Client, Company, StartService
from tests.harness.environments import GENEROUS
from tests.harness.visitors import Visitor, make_person

#: Signs a new person in, by a link: (service, role) -> visitor.
SignIn = Callable[[Client, str], Awaitable[Visitor]]


@pytest.fixture
async def sign_in(company: Company, config: Config) -> AsyncIterator[SignIn]:
    """Return a function that signs people of the company in."""
    async with AsyncExitStack() as stack:

        async def enter(site: Client, role: str) -> Visitor:
            email = f"{role}@example.com"
            link = await make_person(config, company.id, email, role)
            visitor = await stack.enter_async_context(Visitor(site.make_url("/")))
            await visitor.use_link(link)
            return visitor

        yield enter


@pytest.fixture
async def site(start: StartService) -> Client:
    """A client of a service with background work."""
    return await start(**GENEROUS)


@pytest.fixture
async def admin(site: Client, sign_in: SignIn) -> Visitor:
    return await sign_in(site, "admin")


@pytest.fixture
async def member(site: Client, sign_in: SignIn) -> Visitor:
    return await sign_in(site, "member")
