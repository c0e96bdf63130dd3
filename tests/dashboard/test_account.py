"""The page of a person's account: limits of passwords, the log, links made by others, sessions."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest
from aiohttp import web
from argon2 import Parameters, PasswordHasher, extract_parameters
from yarl import URL

from service.commands.bootstrap import run_command
from service.commands.people import link_user
from service.config import Config
from service.dashboard.sessions import PLAIN_COOKIE
from service.http import app_keys
from service.http.limits import TRIES_PER_HOUR, TRIES_PER_MINUTE
from tests.conftest import Company, StartService, make_company
from tests.harness.visitors import PASSWORD, Visitor, join, make_person

EMAIL, BOSS = "aminah@example.com", "boss@example.com"
HOME, NEAR, FAR = "198.51.100.7", "198.51.100.200", "203.0.113.5"


@dataclass(frozen=True, slots=True)
class Site:
    """A service behind a proxy, which says from where a visitor comes."""

    app: web.Application
    url: URL
    config: Config
    company: Company

    def visitor(self, address: str = HOME) -> Visitor:
        return Visitor(self.url, address)

    async def join(self, email: str, role: str = "owner") -> None:
        """Make a person who has accepted a role, with PASSWORD."""
        await join(self.config, self.url, self.company.id, email, role)


@pytest.fixture
async def site(start: StartService, company: Company, config: Config) -> Site:
    """A service without background work, with one person."""
    client = await start(background=False, TRUSTED_PROXIES="127.0.0.1")
    site = Site(client.app, client.make_url("/"), config, company)
    await site.join(EMAIL)
    return site


@pytest.fixture
async def person(site: Site) -> AsyncIterator[Visitor]:
    """The person, signed in from HOME."""
    async with site.visitor() as visitor:
        await visitor.sign_in(EMAIL)
        assert visitor.path == "/"
        await visitor.post("/account/sessions/end-others")
        yield visitor


async def list_entries(owner: asyncpg.Connection, email: str = EMAIL) -> list[tuple[str, ...]]:
    """Return the log of a person as (action, actor, client address), the oldest first."""
    rows = await owner.fetch(
        "select l.action, l.actor, host(l.client_address) as address from user_audit_log l"
        " join users u on u.id = l.user_id where u.email = $1 order by l.id",
        email,
    )
    return [(row["action"], re.sub(r"\d+", "N", row["actor"]), row["address"]) for row in rows]


async def try_password(site: Site, address: str, password: str, email: str = EMAIL) -> int:
    """Return the status of a sign-in from an address."""
    async with site.visitor(address) as visitor:
        await visitor.sign_in(email, password)
        return visitor.status


def use_up_tries(site: Site, email: str = EMAIL) -> None:
    """Use up the tries of a person from all networks, as fast as none becomes free."""
    limiter = site.app[app_keys.LIMITS].account_tries
    while not limiter.take(email):
        pass


# Limits of passwords


async def test_wrong_passwords_from_elsewhere_do_not_lock_a_person_out(site: Site) -> None:
    statuses = [await try_password(site, FAR, "wrong") for _ in range(TRIES_PER_MINUTE + 1)]
    assert statuses == [401] * TRIES_PER_MINUTE + [429]
    assert await try_password(site, HOME, PASSWORD) == 200


@pytest.mark.parametrize(
    ("addresses", "other"),
    [
        (("203.0.113.5", "203.0.113.77"), "203.0.114.5"),
        (("2001:db8:0:1::5", "2001:db8:0:1:ffff::9"), "2001:db8:0:2::5"),
    ],
)
async def test_addresses_of_one_network_share_the_tries_of_a_person(
    site: Site, addresses: tuple[str, str], other: str
) -> None:
    found = [await try_password(site, addresses[n % 2], "wrong") for n in range(TRIES_PER_MINUTE)]
    assert found == [401] * TRIES_PER_MINUTE
    assert await try_password(site, addresses[1], PASSWORD) == 429
    assert await try_password(site, other, PASSWORD) == 200


@pytest.mark.parametrize("email", [EMAIL.upper(), f" {EMAIL} "])
async def test_spellings_of_an_address_share_the_tries(site: Site, email: str) -> None:
    found = [401]
    while found[-1] == 401:  # On a busy machine, tries become free meanwhile.
        found.append(await try_password(site, FAR, "wrong"))
    assert len(found) > TRIES_PER_MINUTE and found[-1] == 429
    tries = range(TRIES_PER_MINUTE // 2)
    assert 429 in [await try_password(site, "203.0.113.6", PASSWORD, email) for _ in tries]


async def test_tries_from_many_networks_are_limited_in_an_hour(
    site: Site, owner: asyncpg.Connection
) -> None:
    limiter = site.app[app_keys.LIMITS].account_tries
    assert not any(limiter.take(EMAIL) for _ in range(TRIES_PER_HOUR - 3))
    found = [await try_password(site, f"10.0.{n}.1", "wrong") for n in range(6)]
    # A try may become free in the time that this takes.
    assert 3 <= found.count(401) < len(found) and set(found) == {401, 429}
    entries = [action for action, _, _ in await list_entries(owner)]
    assert entries.count("fail") == found.count(401)


async def test_a_known_network_is_open_after_tries_from_many_networks(
    site: Site, person: Visitor, owner: asyncpg.Connection
) -> None:
    use_up_tries(site)
    entries = await list_entries(owner)
    assert await try_password(site, FAR, PASSWORD) == 429
    assert await try_password(site, NEAR, "wrong") == 429
    assert await list_entries(owner) == entries
    assert await try_password(site, NEAR, PASSWORD) == 200
    assert await try_password(site, FAR, PASSWORD) == 429
    await person.fill_in("/confirm", {"password": PASSWORD, "next": "/account"})
    assert person.path == "/account"


async def test_a_network_of_another_person_is_not_known(site: Site, person: Visitor) -> None:
    await site.join(BOSS)
    use_up_tries(site, BOSS)
    assert await try_password(site, HOME, PASSWORD, BOSS) == 429


async def test_a_network_is_known_for_90_days(
    site: Site, person: Visitor, owner: asyncpg.Connection
) -> None:
    use_up_tries(site)
    await owner.execute("update user_audit_log set at = at - interval '91 days'")
    assert await try_password(site, HOME, PASSWORD) == 429


async def test_a_network_is_not_known_after_a_reset_by_the_operator(
    site: Site, person: Visitor, owner: asyncpg.Connection
) -> None:
    """Another one may have signed in from it."""
    use_up_tries(site)
    await owner.execute(
        "insert into user_audit_log (user_id, action) select id, 'reset' from users"
    )
    assert await try_password(site, HOME, PASSWORD) == 429


async def test_unknown_people_are_refused_like_known_ones(
    site: Site, person: Visitor, owner: asyncpg.Connection
) -> None:
    count = "select count(*) from user_audit_log"
    before = await owner.fetchval(count)
    unknown = "nobody@example.com"
    assert await try_password(site, FAR, "wrong", unknown) == 401
    for email in (unknown, EMAIL):
        use_up_tries(site, email)
        assert await try_password(site, HOME, "wrong", email) == 429
    assert await owner.fetchval(count) == before


async def test_unknown_people_take_as_long_as_known_ones(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the time is for the comparison with a hash, which depends on its parameters."""
    compared: list[Parameters] = []
    verify = PasswordHasher.verify

    def note_parameters(hasher: PasswordHasher, digest: str, password: str) -> bool:
        compared.append(extract_parameters(digest))
        return verify(hasher, digest, password)

    monkeypatch.setattr(PasswordHasher, "verify", note_parameters)
    for email in (EMAIL, "nobody@example.com"):
        assert await try_password(site, FAR, "wrong", email) == 401
    known, unknown = compared
    assert known == unknown


# The log


async def test_sign_ins_and_wrong_passwords_are_shown_with_their_address(
    site: Site, person: Visitor, owner: asyncpg.Connection
) -> None:
    await try_password(site, FAR, "wrong")
    row = (await person.read_words("/account")).partition("Sign-ins, links and passwords")[2]
    assert f"Wrong password entered {FAR}" in row
    assert f"Signed in by password {HOME}" in row
    assert (await list_entries(owner))[-2:] == [
        ("sign_in", "user N", HOME),
        ("fail", "visitor", FAR),
    ]


async def test_links_and_passwords_are_in_the_log(
    site: Site, person: Visitor, owner: asyncpg.Connection
) -> None:
    await person.fill_in("/password", {"current": "wrong", "password": "other words that I chose"})
    await person.post("/password", {"current": PASSWORD, "password": "other words that I chose"})
    await person.fill_in("/confirm", {"password": "other words that I chose", "next": "/account"})
    link = (await run_command(site.config, link_user, EMAIL))["link"]
    async with site.visitor(FAR) as visitor:
        await visitor.use_link(link, "third words that I chose")
        assert visitor.path == "/companies"
        await visitor.get("/account")
        for text in (
            "One-time link used",
            "One-time link made by the operator",
            "Password made void by the operator",
            "Password entered again",
            "New password stored",
            "Wrong password entered",
        ):
            assert text in visitor.words
    user = ("user N", HOME)
    assert (await list_entries(owner))[3:] == [
        ("sign_in", *user),
        ("fail", *user),
        ("password", *user),
        ("confirm", *user),
        ("reset", "command", None),
        ("link", "command", None),
        ("use_link", "user N", FAR),
        ("password", "user N", FAR),
    ]


async def test_a_wrong_password_in_a_link_is_in_the_log(
    site: Site, environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    other = await make_company(environment)
    link = await make_person(site.config, other.id, EMAIL, "member")
    async with site.visitor(FAR) as visitor:
        await visitor.use_link(link, "wrong")
        assert visitor.status == 422
    assert (await list_entries(owner))[-1] == ("fail", "visitor", FAR)


async def test_the_log_is_read_in_pages_by_its_person_only(
    site: Site, person: Visitor, owner: asyncpg.Connection
) -> None:
    await owner.execute(
        "insert into user_audit_log (user_id, action, client_address)"
        " select id, 'fail', '192.0.2.1' from users, generate_series(1, 60)"
    )
    await site.join(BOSS)
    async with site.visitor(FAR) as boss:
        await boss.sign_in(BOSS)
        await boss.get("/account")
        assert "192.0.2.1" not in boss.text
    await person.get("/account")
    found = person.text.count("Wrong password entered")
    older = re.search(r'href="(/account\?before=\d+)"', person.text)
    await person.get(older[1] if older else "")
    assert found + person.text.count("Wrong password entered") == 60
    for before in ("x", "-1", "9" * 30, "%00"):
        await person.get(f"/account?before={before}")
        assert person.status in (200, 400)


async def test_the_service_cannot_change_the_log(owner: asyncpg.Connection) -> None:
    for right in ("update", "delete", "truncate"):
        assert not await owner.fetchval(
            "select has_table_privilege('einvoice_service', 'user_audit_log', $1)"
            "    or has_any_column_privilege('einvoice_service', 'user_audit_log', 'update')",
            right,
        )


# Links that others make


async def make_link(admin: Visitor, owner: asyncpg.Connection, email: str = EMAIL) -> None:
    """Make a link for a person, on the page of people."""
    user_id = await owner.fetchval("select id from users where email = $1", email)
    await admin.fill_in("/settings/people", path=f"/settings/people/{user_id}/link")
    assert 'id="new-link"' in admin.text


@pytest.fixture
async def boss(site: Site) -> AsyncIterator[Visitor]:
    """Another owner, signed in from another network."""
    await site.join(BOSS)
    async with site.visitor(FAR) as visitor:
        await visitor.sign_in(BOSS)
        yield visitor


async def test_a_link_that_a_colleague_made_is_shown_until_it_was_seen(
    site: Site, boss: Visitor, owner: asyncpg.Connection
) -> None:
    await make_link(boss, owner)
    assert "made a one-time link for you" not in boss.words
    company = await owner.fetchval("select name from companies where id = $1", site.company.id)
    notice = f"boss made a one-time link for you at {company} on "
    async with site.visitor() as person:
        await person.sign_in(EMAIL)
        assert person.path == "/" and notice in person.words
        assert re.search(r"for you at .* on \d+ \w+ \d{4}, \d\d:\d\d", person.words)
        await person.post("/sign-out")
        await person.sign_in(EMAIL)
        assert notice in person.words
        until = re.search(r'name="until" value="(\d+)"', person.text)
        await person.post("/account/links-seen", {"until": until[1] if until else ""})
        assert person.path == "/account" and notice not in person.words
        assert "One-time link made by boss" in person.words and FAR not in person.text
        await person.post("/sign-out")
        await person.sign_in(EMAIL)
        assert notice not in person.words
        await make_link(boss, owner)
        assert notice in await person.read_words("/")


@pytest.mark.parametrize("until", ["", "x", "0", "9" * 17, "9" * 18, "9" * 30, "foreign"])
async def test_the_notice_stays_unless_its_entry_is_named(
    site: Site, boss: Visitor, person: Visitor, owner: asyncpg.Connection, until: str
) -> None:
    await make_link(boss, owner)
    if until == "foreign":
        until = str(await owner.fetchval("select max(id) + 1 from user_audit_log"))
        await try_password(site, FAR, "wrong", BOSS)
    await person.fill_in("/account", {"until": until}, path="/account/links-seen")
    assert person.status == 200 and "boss made a one-time link for you" in person.words


async def test_a_link_for_oneself_is_neither_offered_nor_made(
    site: Site, boss: Visitor, owner: asyncpg.Connection
) -> None:
    """A stolen session could choose the password by it."""
    path = f"/settings/people/{await owner.fetchval('select max(id) from users')}/link"
    await boss.get("/settings/people")
    assert f'action="{path}"' not in boss.text and boss.text.count('/link"') == 1
    await boss.post(path)
    assert boss.status == 409 and "Change your password at Your account." in boss.words
    assert await owner.fetchval("select count(*) from user_links where used_at is null") == 0


async def test_links_of_the_operator_need_no_notice(site: Site, boss: Visitor) -> None:
    await make_person(site.config, site.company.id, BOSS, "owner")
    await boss.get("/")
    assert "one-time link for you" not in boss.words


async def test_a_link_is_in_the_activity_of_the_company(
    boss: Visitor, owner: asyncpg.Connection
) -> None:
    await make_link(boss, owner)
    await boss.get("/settings/activity")
    assert "boss made a one-time link for aminah" in boss.words


# Sessions


def find_sessions(text: str) -> list[str]:
    """Return the ids of the sessions that a page can end."""
    return re.findall(r'action="/account/sessions/(\d+)/end"', text)


async def test_sessions_are_listed_with_their_address_and_this_one_marked(
    site: Site, person: Visitor
) -> None:
    async with site.visitor(FAR) as other:
        await other.sign_in(EMAIL)
        for visitor in (person, other):
            await visitor.get("/account")
            assert visitor.text.count("This session") == 1
            assert len(find_sessions(visitor.text)) == 1
            sessions = visitor.words.partition("Sign-ins, links and passwords")[0]
            assert HOME in sessions and FAR in sessions


async def test_a_session_is_ended_from_another_one(site: Site, person: Visitor) -> None:
    async with site.visitor(FAR) as other:
        await other.sign_in(EMAIL)
        await person.get("/account")
        [session] = find_sessions(person.text)
        for _ in range(2):
            await person.post(f"/account/sessions/{session}/end")
            assert person.path == "/account" and "The session is ended." in person.words
        assert find_sessions(person.text) == []
        await other.get("/")
        assert other.path == "/sign-in"


async def test_all_other_sessions_are_ended_at_once(site: Site, person: Visitor) -> None:
    async with site.visitor(FAR) as first, site.visitor(NEAR) as second:
        for other in (first, second):
            await other.sign_in(EMAIL)
        await person.get("/account")
        await asyncio.gather(*[person.post("/account/sessions/end-others") for _ in range(2)])
        assert "Your other sessions are ended." in person.words
        assert find_sessions(person.text) == []
        for other in (first, second):
            await other.get("/")
            assert other.path == "/sign-in"


async def test_sessions_of_other_people_are_unknown(
    site: Site, person: Visitor, boss: Visitor, owner: asyncpg.Connection
) -> None:
    theirs = await owner.fetchval(
        "select max(s.id) from user_sessions s join users u on u.id = s.user_id"
        " where u.email = $1 and s.ended_at is null",
        BOSS,
    )
    answers = []
    for session in (theirs, 999_999_999):
        await person.fill_in("/account", path=f"/account/sessions/{session}/end")
        answers.append((person.status, "There is no such session." in person.words))
    assert answers == [(404, True), (404, True)]
    await person.fill_in("/account", path="/account/sessions/end-others")
    await boss.get("/")
    assert boss.path == "/"


async def test_a_person_without_a_company_sees_the_account(site: Site, person: Visitor) -> None:
    link = (await run_command(site.config, link_user, EMAIL))["link"]
    async with site.visitor() as visitor:
        await visitor.use_link(link, "other words that I chose")
        await visitor.get("/account")
        assert visitor.status == 200 and "This session" in visitor.words


#: Changes after which a session is old. Its row, too, may be gone.
OLD = {
    "idle": "update user_sessions set seen_at = seen_at - interval '31 minutes'",
    "long": "update user_sessions set created_at = created_at - interval '13 hours'",
    "ended": "update user_sessions set ended_at = clock_timestamp()",
    "deleted": "delete from user_sessions",
    "of another company": "update user_sessions set company = 999999999",
    "of no person": "delete from company_members",
}


@pytest.mark.parametrize("kind", list(OLD))
async def test_an_old_session_answers_with_the_sign_in_page(
    site: Site, person: Visitor, owner: asyncpg.Connection, kind: str
) -> None:
    await owner.execute(OLD[kind])
    for path in ("/", "/invoices", "/account", "/password", "/confirm", "/companies"):
        await person.get(path)
        assert (path, person.path, person.status) == (path, "/sign-in", 200)
    for path in (
        "/sign-out",
        "/account/sessions/end-others",
        "/account/sessions/1/end",
        "/account/links-seen",
        "/password",
        "/confirm",
        "/settings/people",
        "/companies",
    ):
        await person.post(path, {"password": PASSWORD})
        assert (path, person.path, person.status) == (path, "/sign-in", 200)


@pytest.mark.parametrize("text", ["x", "x" * 4_000, "%00", "\u00e9", '"', "a=b"])
async def test_a_cookie_that_is_no_token_answers_with_the_sign_in_page(
    site: Site, text: str
) -> None:
    async with site.visitor() as visitor:
        visitor._session.headers["Cookie"] = f"{PLAIN_COOKIE}={text}"
        for path in ("/", "/account"):
            await visitor.get(path)
            assert (visitor.path, visitor.status) == ("/sign-in", 200)
