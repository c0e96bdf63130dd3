"""People who use the dashboard: sessions of their own, forms, and one-time links."""

import re
from collections.abc import Mapping
from html import unescape
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from service.config import Config
from service.dashboard import people
from service.dashboard.links import NewLink, make_link
from service.db.pool import connected_pool
from service.db.transactions import Database

PASSWORD = "four plain words together"
_TOKEN = re.compile(r'name="form_token" value="([^"]*)"')


class Visitor:
    """A browser without JavaScript: it keeps cookies, and sends forms with their hidden token."""

    def __init__(self, base: URL, address: str | None = None) -> None:
        """Visit a site. `address` is that of the client, which a trusted proxy would send."""
        self._base = base
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            headers={"X-Forwarded-For": address} if address else None,
        )
        self.status = 0
        self.text = ""
        self.path = ""
        self.headers: Mapping[str, str] = {}
        self.is_page = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    @property
    def cookies(self) -> dict[str, str]:
        return self.cookies_of(self._base)

    def cookies_of(self, page: URL) -> dict[str, str]:
        found = self._session.cookie_jar.filter_cookies(page)
        return {name: each.value for name, each in found.items()}

    @property
    def words(self) -> str:
        """The text of the page without tags, with single spaces."""
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", self.text)))

    async def get(self, path: str) -> str:
        """Open a page, follow redirects, and return its text."""
        async with self._session.get(self._base.join(URL(path, encoded=True))) as response:
            return await self._keep(response)

    async def read_words(self, path: str) -> str:
        """Open a page, and return its words."""
        await self.get(path)
        return self.words

    async def post(
        self,
        path: str,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> str:
        """Send a form with the token of the page that is open, and return the page that follows."""
        found = _TOKEN.search(self.text)
        sent = {"form_token": token if token is not None else found[1] if found else ""}
        async with self._session.post(
            self._base.join(URL(path, encoded=True)),
            data={**sent, **(fields or {})},
            headers=headers,
        ) as response:
            return await self._keep(response)

    async def fill_in(
        self, page: str, fields: Mapping[str, str] | None = None, path: str | None = None
    ) -> str:
        """Open a page, send its form, to another path if one is given, and return the answer."""
        await self.get(page)
        return await self.post(path or page, fields)

    async def _keep(self, response: aiohttp.ClientResponse) -> str:
        self.status, self.path = response.status, response.url.path
        self.headers = response.headers
        self.is_page = response.content_type == "text/html"
        self.text = await response.text(errors="replace")  # A file can be a picture.
        return self.text

    async def sign_in(self, email: str, password: str = PASSWORD) -> str:
        return await self.fill_in("/sign-in", {"email": email, "password": password})

    async def use_link(self, link: str, password: str = PASSWORD) -> str:
        """Open a one-time link, and accept its role with a new password or the present one."""
        return await self.fill_in(URL(link).path, {"password": password})


async def make_person(config: Config, company_id: int, email: str, role: str) -> str:
    """Invite a person to a company, and return the link by which the role is accepted."""
    async with connected_pool(config.database_url, 2) as pool:
        database = Database(pool)
        person = people.Person(email, email.partition("@")[0])
        user_id, _ = await people.invite(database, company_id, person, role)
        new = NewLink(user_id, company_id)
        return await make_link(database, "http://127.0.0.1", new)


async def join(config: Config, site: URL, company_id: int, email: str, role: str) -> None:
    """Invite a person to a company, and accept the role with PASSWORD."""
    link = await make_person(config, company_id, email, role)
    async with Visitor(site) as visitor:
        await visitor.use_link(link)
        assert visitor.status == 200 and visitor.path in ("/", "/companies"), visitor.words
