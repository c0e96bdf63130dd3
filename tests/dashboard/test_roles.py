"""Roles that people accept: what a link of a company, or of the operator, can do for a person.

Companies invite a person who may have roles in others. An administrator of one of them may be an
attacker, who opens the links that are made for the person.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg
import pytest
from yarl import URL

from service.commands.bootstrap import run_command
from service.commands.people import invite_user, link_user
from service.config import read_config
from service.dashboard.links import CONFIRM, SIGN_IN, Link, NewLink, Role, make_link
from service.db.pool import connected_pool
from service.db.transactions import Database
from tests.api_reads import count_waiting, wait_for_lock
from tests.conftest import Client, Company, make_company, until
from tests.harness.visitors import PASSWORD, Visitor, join, make_person

ACCOUNTANT = "accountant@firm.example"
OWN = "words that only the accountant knows"
GONE = "This link was used or has expired."


@dataclass(frozen=True, slots=True)
class Site:
    """A service, with companies that invite the accountant."""

    url: URL
    environment: Mapping[str, str]
    company: Company

    async def invite(self, company: Company, role: str = "admin", email: str = ACCOUNTANT) -> str:
        """Invite a person to a company, and return the link."""
        return await make_person(read_config(self.environment), company.id, email, role)

    async def join(self, company: Company, email: str, role: str = "owner") -> None:
        """Make a person who has accepted a role, with PASSWORD."""
        await join(read_config(self.environment), self.url, company.id, email, role)

    async def operator_link(self, email: str = ACCOUNTANT) -> str:
        return (await run_command(read_config(self.environment), link_user, email))["link"]

    async def sign_in(self, email: str, password: str = PASSWORD) -> "Visitor":
        """Return a visitor who has tried to sign in."""
        visitor = Visitor(self.url)
        await visitor.sign_in(email, password)
        return visitor

    async def open(self, link: str, password: str | None = None) -> "Visitor":
        """Return a visitor who has opened a link, and used it if there is a password."""
        visitor = Visitor(self.url)
        if password is None:
            await visitor.get(URL(link).path)
        else:
            await visitor.use_link(link, password)
        return visitor


@pytest.fixture
async def site(idle: Client, environment: dict[str, str], company: Company) -> AsyncIterator[Site]:
    """A service without background work."""
    yield Site(idle.make_url("/"), environment, company)


@pytest.fixture
async def attacker(environment: dict[str, str]) -> Company:
    """A company whose administrator uses the links that are meant for others."""
    return await make_company(environment, name="Attacker Sdn. Bhd.")


@pytest.fixture
async def boss(site: Site) -> AsyncIterator[Visitor]:
    await site.join(site.company, "boss@example.com")
    async with await site.sign_in("boss@example.com") as visitor:
        yield visitor


async def may_enter(visitor: Visitor, company: Company) -> bool:
    """Return whether a session can show a company and make an API key of it."""
    await visitor.fill_in("/companies", {"company": str(company.id)})
    await visitor.get("/settings/keys")
    if company.key_id not in visitor.text:
        return False
    await visitor.post("/settings/keys", {"name": "till"})
    return "einv_test_" in visitor.text


async def list_roles(owner: asyncpg.Connection) -> dict[int, bool]:
    """Return {company: is accepted} of the accountant."""
    rows = await owner.fetch(
        "select m.company_id, m.accepted_at is not null as accepted from company_members m"
        " join users u on u.id = m.user_id where u.email = $1",
        ACCOUNTANT,
    )
    return {row["company_id"]: row["accepted"] for row in rows}


# The attacks


async def test_a_password_that_an_attacker_chose_opens_no_other_company(
    site: Site, attacker: Company
) -> None:
    """The attacker invites the accountant before others do, and uses the link at once."""
    link = await site.invite(attacker)
    async with await site.open(link, "a password of the attacker") as thief:
        assert await may_enter(thief, attacker)
        await site.invite(site.company)
        assert not await may_enter(thief, site.company)
        assert "Not accepted" in await thief.read_words("/companies")
    async with await site.sign_in(ACCOUNTANT, "a password of the attacker") as again:
        assert not await may_enter(again, site.company)


async def test_a_link_that_an_attacker_kept_sets_no_password_for_another_company(
    site: Site, attacker: Company
) -> None:
    """The attacker uses the link only after another company has invited the accountant."""
    kept = await site.invite(attacker)
    await site.invite(site.company)
    async with await site.open(kept, "a password of the attacker") as thief:
        assert thief.status == 422 and "Ask the operator" in thief.words
        await thief.sign_in(ACCOUNTANT, "a password of the attacker")
        assert thief.status == 401


async def expect_gone(site: Site, link: str) -> None:
    """Check that a link can no longer be used."""
    async with await site.open(link) as visitor:
        assert visitor.status == 404 and GONE in visitor.words


async def test_a_kept_link_is_void_after_another_company_was_joined(
    site: Site, attacker: Company
) -> None:
    third = await make_company(site.environment)
    await site.join(third, ACCOUNTANT)
    kept = await site.invite(attacker)
    async with await site.open(await site.invite(site.company), PASSWORD) as person:
        assert await may_enter(person, site.company)
    await expect_gone(site, kept)


async def test_the_operators_link_ends_what_an_attacker_began(
    site: Site, attacker: Company, owner: asyncpg.Connection
) -> None:
    chosen = "a password of the attacker"
    async with await site.open(await site.invite(attacker), chosen) as thief:
        before = await site.invite(site.company)
        link = await site.operator_link()
        await thief.get("/")
        assert thief.path == "/sign-in"
        async with await site.open(before) as person:
            assert person.status == 404
        assert set((await list_roles(owner)).values()) == {False}
        async with await site.open(await site.invite(attacker), chosen) as again:
            assert again.status == 422 and "Ask the operator" in again.words
    async with await site.open(link, OWN) as person:
        assert person.path == "/companies"
    assert set((await list_roles(owner)).values()) == {False}
    async with await site.open(await site.invite(site.company), OWN) as person:
        assert await may_enter(person, site.company)
        assert not await may_enter(person, attacker)
    async with await site.open(await site.invite(attacker), chosen) as thief:
        assert thief.status == 422 and "The password is wrong." in thief.words


# Several companies


async def test_a_link_of_a_second_company_asks_for_the_present_password(
    site: Site, attacker: Company
) -> None:
    await site.join(await make_company(site.environment, name="First Bhd."), ACCOUNTANT)
    link = await site.invite(attacker, "reader")
    async with await site.open(link) as person:
        assert "Attacker Sdn. Bhd. invites you with the role Read only" in person.words
        assert "First Bhd." not in person.words
        await person.use_link(link, "a wrong password")
        assert person.status == 422 and "The password is wrong." in person.words
        await person.use_link(link)
        assert person.path == "/companies" and "Not accepted" not in person.words
        await person.get("/settings/keys")
        assert person.status == 403


@pytest.mark.parametrize(
    "password, has_joined, tries",
    [("a wrong password", True, 9), ("a" * 100, False, 10)],
    ids=["guess", "weak"],
)
async def test_passwords_that_a_link_refuses_are_limited(
    site: Site, attacker: Company, password: str, has_joined: bool, tries: int
) -> None:
    """Joining takes a try. A weak password takes a while to be judged."""
    if has_joined:
        await site.join(site.company, ACCOUNTANT)
    link = await site.invite(attacker)
    async with Visitor(site.url) as visitor:
        found: list[int] = []
        while 429 not in found and len(found) < 60:  # A slow machine earns further tries meanwhile.
            await visitor.use_link(link, password)
            found.append(visitor.status)
        assert found[:tries] == [422] * tries and found[-1] == 429


async def test_three_companies_are_joined_one_by_one(site: Site, attacker: Company) -> None:
    third = await make_company(site.environment)
    await site.join(site.company, ACCOUNTANT)
    links = [await site.invite(each) for each in (attacker, third)]
    for link, (joined, pending) in zip(links, ((2, 1), (3, 0)), strict=True):
        async with await site.open(link, PASSWORD) as person:
            assert person.path == "/companies"
            assert person.text.count('action="/companies"') == joined - 1
            assert person.text.count('<span class="badge">') == pending
    async with await site.sign_in(ACCOUNTANT) as person:
        for each in (site.company, attacker, third):
            assert await may_enter(person, each)


async def test_an_invitation_of_another_company_is_void_after_the_own_link_is_used(
    site: Site, attacker: Company, owner: asyncpg.Connection
) -> None:
    """A company whose role was accepted can make a link for a forgotten password."""
    invitation, link = await invite_and_link(site, attacker)
    assert (await list_roles(owner)) == {site.company.id: True, attacker.id: False}
    async with await site.open(link, OWN) as person:
        assert person.status == 200
    assert (await list_roles(owner)) == {site.company.id: True}
    async with await site.open(invitation) as person:
        assert person.status == 404


async def leave(site: Site, email: str, company: Company) -> None:
    """Let a person leave a company."""
    async with await site.sign_in(email) as person:
        await person.fill_in("/companies", path=f"/companies/{company.id}/leave")
        assert "You no longer have a role in that company." in person.words


async def test_a_companys_link_hides_the_log_at_another_company(
    site: Site, attacker: Company, owner: asyncpg.Connection
) -> None:
    """The attacker invites a person who has left the other company, and uses the link."""
    former = await make_company(site.environment, name="Former Bhd.")
    for email in ("boss@example.com", ACCOUNTANT):
        await site.join(former, email)
    async with await site.sign_in("boss@example.com") as boss:
        assert await make_password_link(boss, ACCOUNTANT)
    await leave(site, ACCOUNTANT, former)
    link = await site.invite(attacker)
    await owner.execute("update user_audit_log set client_address = '192.0.2.1'")
    async with await site.open(link, "a password of the attacker") as thief:
        assert thief.status == 200 and "one-time link for you" not in thief.words
        assert "One-time link used" in await thief.read_words("/account")
        assert "Former Bhd." not in thief.words and "boss" not in thief.words
        assert "192.0.2.1" not in thief.words and "Signed in by password" not in thief.words


async def test_a_companys_link_keeps_the_log_at_the_company(site: Site, boss: Visitor) -> None:
    await site.join(site.company, ACCOUNTANT, "member")
    link = await make_password_link(boss, ACCOUNTANT)
    async with await site.open(link, OWN) as person:
        assert "boss made a one-time link for you" in person.words
        assert (await person.read_words("/account")).count("One-time link used") == 2


async def invite_and_link(site: Site, other: Company) -> tuple[str, str]:
    """Return another company's invitation of a member, and then a link for a password."""
    await site.join(site.company, "boss@example.com")
    await site.join(site.company, ACCOUNTANT, "member")
    invitation = await site.invite(other)
    async with await site.sign_in("boss@example.com") as boss:
        return invitation, await make_password_link(boss, ACCOUNTANT)


async def send_form(admin: Visitor, email: str, action: str, **fields: str) -> None:
    """Send a form of a person on the open page of people."""
    row = admin.text[admin.text.index(f"<bdi>{email}</bdi>") :]
    path = re.search(rf'action="(/settings/people/\d+/{action})"', row)
    await admin.post(path[1] if path else "", fields)


def read_new_link(admin: Visitor) -> str:
    found = re.search(r'id="new-link">([^<]*)<', admin.text)
    return found[1] if found else ""


async def make_password_link(admin: Visitor, email: str) -> str:
    """Make a link for a person of the company, on the page of people."""
    await admin.get("/settings/people")
    await send_form(admin, email, "link")
    return read_new_link(admin)


async def test_no_link_is_made_for_a_person_who_has_joined_another_company(
    site: Site, boss: Visitor, attacker: Company
) -> None:
    """It would set the password for the other company."""
    for company in (site.company, attacker):
        await site.join(company, ACCOUNTANT, "member")
    assert await make_password_link(boss, ACCOUNTANT) == ""
    assert boss.status == 409 and "accepted roles of other companies" in boss.words


async def test_a_link_made_before_another_company_was_joined_sets_no_password(
    site: Site, attacker: Company
) -> None:
    invitation, kept = await invite_and_link(site, attacker)
    async with await site.open(invitation, PASSWORD) as person:
        assert person.path == "/companies"
    async with await site.open(kept, "a password of the attacker") as thief:
        assert thief.status == 422 and "The password is wrong." in thief.words


# Races, and what has changed since


@asynccontextmanager
async def delayed(
    owner: asyncpg.Connection, visitors: Sequence[Visitor], link: str
) -> AsyncIterator[None]:
    """Use a link by all visitors at once, and let them wait for the person until the block ends."""
    async with owner.transaction():
        await owner.execute("select from users for update")
        uses = [
            asyncio.create_task(visitor.post(URL(link).path, {"password": f"{OWN} {number}"}))
            for number, visitor in enumerate(visitors)
        ]
        await until(lambda: count_waiting(owner), lambda found: found == len(visitors))
        yield
    await asyncio.gather(*uses)


async def test_a_link_opened_twice_at_once_is_used_once(
    site: Site, owner: asyncpg.Connection
) -> None:
    link = await site.invite(site.company)
    visitors = [await site.open(link) for _ in range(2)]
    async with delayed(owner, visitors, link):
        pass
    statuses = [visitor.status for visitor in visitors]
    assert sorted(statuses) == [200, 404]
    async with await site.sign_in(ACCOUNTANT, f"{OWN} {statuses.index(200)}") as person:
        assert person.status == 200 and person.path == "/"
    for visitor in visitors:
        await visitor.__aexit__(None, None, None)


async def test_a_link_is_not_used_if_another_company_invites_meanwhile(
    site: Site, attacker: Company, owner: asyncpg.Connection
) -> None:
    link = await site.invite(attacker)
    async with await site.open(link) as thief:
        async with delayed(owner, [thief], link):
            await owner.execute(
                "insert into company_members (company_id, user_id, role, name)"
                " select $1, id, 'owner', name from users",
                site.company.id,
            )
        assert thief.status == 404
    assert await owner.fetchval("select password_hash from users") is None


async def test_a_link_for_a_removed_person_is_void_also_after_another_invitation(
    site: Site,
    boss: Visitor,
) -> None:
    former = await site.invite(site.company)
    await boss.get("/settings/people")
    await send_form(boss, ACCOUNTANT, "remove")
    assert "The person is removed." in boss.words
    async with await site.open(former) as person:
        assert person.status == 404
    present = await site.invite(site.company)
    async with await site.open(former) as person:
        assert person.status == 404
    async with await site.open(present, OWN) as person:
        assert person.status == 200 and person.path == "/"


async def test_a_newer_link_of_another_company_is_void_once_the_older_one_was_used(
    site: Site, environment: dict[str, str]
) -> None:
    """The older link sets the password and removes the role that the newer one invites to."""
    await site.join(site.company, ACCOUNTANT, "member")
    older = await site.invite(site.company, "member")
    newer = await site.invite(await make_company(environment))
    async with await site.open(older, OWN) as person:
        assert person.status == 200
    async with await site.open(newer) as person:
        assert person.status == 404


async def test_a_person_invited_again_accepts_the_role_again(
    site: Site, owner: asyncpg.Connection
) -> None:
    await site.join(site.company, "boss@example.com")
    await site.join(site.company, ACCOUNTANT, "member")
    async with await site.sign_in(ACCOUNTANT) as person:
        await person.fill_in("/companies", path=f"/companies/{site.company.id}/leave")
        assert person.path == "/companies" and "No company has given you a role." in person.words
        await site.invite(site.company, "member")
        await person.get("/invoices")
        assert person.path == "/companies"
    assert await list_roles(owner) == {site.company.id: False}


async def test_a_role_changed_while_pending_is_accepted_as_it_is_then(
    site: Site, boss: Visitor
) -> None:
    former = await site.invite(site.company, "owner")
    await boss.get("/settings/people")
    fields = {"email": ACCOUNTANT, "name": "A", "role": "reader"}
    await boss.post("/settings/people", fields)
    link = read_new_link(boss)
    async with await site.open(former) as person:
        assert person.status == 404
    async with await site.open(link, OWN) as person:
        await person.get("/settings/people")
        assert person.status == 403


async def test_a_change_of_role_keeps_the_name_and_the_link_of_a_pending_person(
    site: Site, boss: Visitor
) -> None:
    await site.invite(site.company, "owner")
    await boss.get("/settings/people")
    await send_form(boss, ACCOUNTANT, "role", role="reader")
    link = read_new_link(boss)
    assert f"<bdi>{ACCOUNTANT.partition('@')[0]}</bdi>" in boss.text
    async with await site.open(link, OWN) as person:
        assert person.status == 200 and person.path == "/"


async def test_a_change_of_role_gives_an_accepted_person_the_role(
    site: Site, boss: Visitor
) -> None:
    await site.join(site.company, ACCOUNTANT)
    await boss.get("/settings/people")
    await send_form(boss, ACCOUNTANT, "role", role="admin")
    assert "The person has the role now." in boss.words


async def test_an_unknown_role_changes_nothing(
    site: Site, boss: Visitor, owner: asyncpg.Connection
) -> None:
    await site.join(site.company, ACCOUNTANT)
    await boss.get("/settings/people")
    await send_form(boss, ACCOUNTANT, "role", role="king")
    assert boss.status == 400 and "a role are required" in boss.words
    assert await owner.fetchval("select count(*) from company_members where role = 'owner'") == 2


async def test_a_change_of_role_does_not_invite_a_removed_person(
    site: Site, boss: Visitor, owner: asyncpg.Connection
) -> None:
    await site.join(site.company, ACCOUNTANT)
    await boss.get("/settings/people")
    await leave(site, ACCOUNTANT, site.company)
    await send_form(boss, ACCOUNTANT, "role", role="reader")
    assert boss.status == 404 and "no such person in this company" in boss.words
    assert await list_roles(owner) == {}


async def test_a_link_made_for_a_lower_role_is_void_after_the_role_was_raised(site: Site) -> None:
    """An administrator may make no link for an owner, and keeps one made for a member."""
    for email, role in (("boss@example.com", "owner"), ("admin@example.com", "admin")):
        await site.join(site.company, email, role)
    await site.join(site.company, ACCOUNTANT, "member")
    async with Visitor(site.url) as admin, Visitor(site.url) as boss:
        await admin.sign_in("admin@example.com")
        kept = await make_password_link(admin, ACCOUNTANT)
        await boss.sign_in("boss@example.com")
        await boss.get("/settings/people")
        fields = {"email": ACCOUNTANT, "name": "A", "role": "owner"}
        await boss.post("/settings/people", fields)
        assert "The person has the role now." in boss.words
    await expect_gone(site, kept)


async def test_a_session_loses_its_rights_when_its_role_becomes_pending(
    site: Site, owner: asyncpg.Connection
) -> None:
    await site.join(site.company, ACCOUNTANT)
    async with await site.sign_in(ACCOUNTANT) as person:
        assert await may_enter(person, site.company)
        await owner.execute("update company_members set accepted_at = null")
        await person.get("/settings/keys")
        assert site.company.key_id not in person.text
        assert not await may_enter(person, site.company)


async def test_companies_neither_see_nor_choose_the_name_of_anothers_person(
    site: Site, boss: Visitor, attacker: Company
) -> None:
    config = read_config(site.environment)
    await run_command(config, invite_user, attacker.id, "owner", email=ACCOUNTANT, name="Squatted")
    await site.join(attacker, "thief@example.com")
    await boss.get("/settings/people")
    fields = {"email": ACCOUNTANT, "name": "Siti binti Ahmad", "role": "member"}
    await boss.post("/settings/people", fields)
    assert "Siti binti Ahmad" in boss.words and "Squatted" not in boss.words
    link = await make_password_link(boss, ACCOUNTANT)
    async with await site.open(link) as person:
        assert "Squatted" not in person.words
    # The person has two invitations, so only the operator's link chooses a password.
    async with await site.open(await site.operator_link(), OWN):
        pass
    async with await site.open(await make_password_link(boss, ACCOUNTANT), OWN):
        pass
    await boss.get("/settings/people")
    assert "Siti binti Ahmad" in boss.words and "Squatted" not in boss.words
    async with await site.sign_in("thief@example.com") as thief:
        await thief.get("/settings/people")
        assert "Squatted" in thief.words and "Siti" not in thief.words
        await thief.get("/settings/activity")
        assert ACCOUNTANT in thief.words and "Siti" not in thief.words
        async with await site.sign_in(ACCOUNTANT, OWN) as person:
            await person.fill_in("/companies", path=f"/companies/{attacker.id}/leave")
        await thief.get("/settings/activity")
        assert "refused the role of" in thief.words and "Siti" not in thief.words


async def test_people_invite_a_limited_number_of_people(
    site: Site, boss: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.dashboard.people.MOST_PEOPLE", 2)
    for email, status in ((ACCOUNTANT, 200), ("third@example.com", 409), (ACCOUNTANT, 200)):
        await boss.get("/settings/people")
        await boss.post("/settings/people", {"email": email, "name": "A", "role": "reader"})
        assert boss.status == status, boss.words


async def test_a_link_stays_usable_if_the_same_role_is_given_again(
    site: Site, boss: Visitor
) -> None:
    await site.join(site.company, ACCOUNTANT, "member")
    link = await make_password_link(boss, ACCOUNTANT)
    fields = {"email": ACCOUNTANT, "name": "A", "role": "member"}
    await boss.post("/settings/people", fields)
    async with await site.open(link, OWN) as person:
        assert person.status == 200 and person.path == "/"


@pytest.mark.parametrize("change", ["remove", "lower", "leave", "link-user"])
async def test_links_that_a_former_owner_made_for_others_are_void(site: Site, change: str) -> None:
    former = "former@example.com"
    for email in ("boss@example.com", former, ACCOUNTANT):
        await site.join(site.company, email)
    async with Visitor(site.url) as thief, Visitor(site.url) as boss:
        await thief.sign_in(former)
        kept = await make_password_link(thief, ACCOUNTANT)
        async with await site.open(kept) as person:
            assert person.status == 200
        await boss.sign_in("boss@example.com")
        await boss.get("/settings/people")
        if change == "remove":
            await send_form(boss, former, "remove")
        elif change == "lower":
            fields = {"email": former, "name": "F", "role": "reader"}
            await boss.post("/settings/people", fields)
        elif change == "leave":
            await thief.post(f"/companies/{site.company.id}/leave")
        else:
            await site.operator_link(former)
    await expect_gone(site, kept)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_new_password_makes_links_for_the_person_void(
    site: Site, owner: asyncpg.Connection, is_first: bool
) -> None:
    await site.join(site.company, ACCOUNTANT)
    async with await site.sign_in(ACCOUNTANT) as person:
        kept = await site.invite(site.company, "owner")
        if is_first:
            await owner.execute("update users set password_hash = null")
        await person.fill_in("/password", {"current": PASSWORD, "password": OWN})
        assert person.status == 200 and person.path == "/"
    await expect_gone(site, kept)


async def test_a_new_password_makes_links_by_the_person_void(site: Site, boss: Visitor) -> None:
    await site.join(site.company, ACCOUNTANT)
    kept = await make_password_link(boss, ACCOUNTANT)
    await boss.fill_in("/password", {"current": PASSWORD, "password": OWN})
    assert boss.status == 200 and boss.path == "/"
    await expect_gone(site, kept)


async def test_a_new_password_makes_a_link_void_that_is_made_meanwhile(
    site: Site, boss: Visitor, owner: asyncpg.Connection
) -> None:
    """Somebody else has the session of the person, and makes links until it ends."""
    await site.join(site.company, ACCOUNTANT)
    person = await owner.fetchval("select max(id) from users")
    async with await site.sign_in("boss@example.com") as victim:
        await victim.get("/password")
        await boss.get("/settings/people")
        async with owner.transaction():
            await owner.execute("select from company_members for update")
            making = asyncio.create_task(boss.post(f"/settings/people/{person}/link", {}))
            await wait_for_lock(owner)
            change = asyncio.create_task(
                victim.post("/password", {"current": PASSWORD, "password": OWN})
            )
            await until(lambda: count_waiting(owner), lambda found: found == 2 or change.done())
        await asyncio.gather(making, change)
    assert victim.status == 200 and victim.path == "/"
    assert await owner.fetchval("select count(*) from user_links where used_at is null") == 0


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_role_cannot_change_while_a_link_for_it_is_made(
    site: Site, owner: asyncpg.Connection, is_new: bool
) -> None:
    """The link would be for a role that its maker may not give."""
    await site.join(site.company, "admin@example.com", "admin")
    if not is_new:
        await site.join(site.company, ACCOUNTANT, "member")
    roles = "select from company_members where role = 'member' for update nowait"
    async with await site.sign_in("admin@example.com") as admin:
        await admin.get("/settings/people")
        path = "/settings/people"
        fields = {"email": ACCOUNTANT, "name": "A", "role": "member"}
        if not is_new:
            path += f"/{await owner.fetchval('select max(id) from users')}/link"
        async with owner.transaction():
            await owner.execute("lock user_audit_log in share mode")
            making = asyncio.create_task(admin.post(path, fields))
            await wait_for_lock(owner)
            with pytest.raises(asyncpg.LockNotAvailableError):
                async with owner.transaction():
                    await owner.execute(roles)
        await making
        assert 'id="new-link"' in admin.text


async def test_companies_that_invite_a_new_person_at_once_both_get_a_link(
    site: Site, attacker: Company, owner: asyncpg.Connection
) -> None:
    async with owner.transaction():
        # The addresses are in the index, and others wait for the end of this transaction.
        await owner.execute("insert into users (email, name) values ($1, 'A')", ACCOUNTANT)
        invitations = [asyncio.create_task(site.invite(each)) for each in (site.company, attacker)]
        await until(lambda: count_waiting(owner), lambda found: found == 2)
    links = await asyncio.gather(*invitations)
    assert await list_roles(owner) == {site.company.id: False, attacker.id: False}
    for link in links:
        async with await site.open(link) as person:
            assert person.status == 200


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_session_that_ends_meanwhile_chooses_no_password(
    site: Site, attacker: Company, owner: asyncpg.Connection, is_first: bool
) -> None:
    """The operator's command ends the session of a request that is under way."""
    chosen = "a password of the attacker"
    async with await site.open(await site.invite(attacker), chosen) as thief:
        await site.invite(site.company)
        await thief.get("/password")
        fields = {"current": chosen, "password": "other words of the attacker"}
        if is_first:
            await owner.execute("update users set password_hash = null")
        async with owner.transaction():
            await owner.execute("select from users for update")
            change = asyncio.create_task(thief.post("/password", fields))
            await wait_for_lock(owner)
            await owner.execute("update users set password_hash = null")
            await owner.execute("update user_sessions set ended_at = clock_timestamp()")
        await change
        assert thief.path == "/sign-in"
    assert await owner.fetchval("select password_hash from users") is None
    assert await list_roles(owner) == {attacker.id: True, site.company.id: False}


async def test_a_person_who_is_removed_meanwhile_makes_no_key(
    site: Site, owner: asyncpg.Connection
) -> None:
    async with await site.open(await site.invite(site.company), PASSWORD) as person:
        await person.get("/settings/keys")
        async with owner.transaction():
            await owner.execute("delete from company_members")
            creation = asyncio.create_task(person.post("/settings/keys", {"name": "Shop"}))
            await wait_for_lock(owner)
        await creation
        assert person.status == 403
    assert await owner.fetchval("select count(*) from api_keys where name = 'Shop'") == 0


@pytest.mark.parametrize("path", ["/sign-in", "/confirm"])
async def test_no_session_begins_with_a_password_that_changes_meanwhile(
    site: Site, owner: asyncpg.Connection, path: str
) -> None:
    """Such a session would outlive the operator's command, which ends all sessions."""
    await site.join(site.company, ACCOUNTANT)
    async with Visitor(site.url) as thief:
        if path == "/confirm":
            await thief.sign_in(ACCOUNTANT)
        await thief.get(path)
        async with owner.transaction():
            await owner.execute("select from users for update")
            fields = {"email": ACCOUNTANT, "password": PASSWORD}
            entering = asyncio.create_task(thief.post(path, fields))
            await wait_for_lock(owner)
            await owner.execute("update users set password_hash = null")
            await owner.execute("update user_sessions set ended_at = clock_timestamp()")
        await entering
        assert thief.path == "/sign-in"
    assert await owner.fetchval("select count(*) from user_sessions where ended_at is null") == 0


async def test_a_session_that_has_expired_accepts_and_leaves_nothing(
    site: Site, attacker: Company, owner: asyncpg.Connection
) -> None:
    await site.join(site.company, ACCOUNTANT)
    await site.invite(attacker)
    async with await site.sign_in(ACCOUNTANT) as person:
        await person.get("/companies")
        await owner.execute("update user_sessions set seen_at = seen_at - interval '31 minutes'")
        for path in ("/companies", f"/companies/{attacker.id}/leave"):
            await person.post(path, {"company": str(attacker.id)})
            assert person.status == 401 and 'action="/sign-in"' in person.text
            await person.get("/sign-in")
    assert await list_roles(owner) == {site.company.id: True, attacker.id: False}


async def test_accepting_a_role_ends_the_other_sessions(site: Site, attacker: Company) -> None:
    await site.join(site.company, ACCOUNTANT)
    async with await site.sign_in(ACCOUNTANT) as other:
        assert other.path == "/"
        async with await site.open(await site.invite(attacker), PASSWORD):
            await other.get("/")
            assert other.path == "/sign-in"


# The names of companies


NAME_OF_A_COMPANY = "The password is mostly your name, address or company."


async def test_a_companys_link_refuses_its_name_as_a_password(
    site: Site, attacker: Company
) -> None:
    link = await site.invite(attacker)
    async with await site.open(link, "attacker-sdn-bhd 26") as person:
        assert person.status == 422 and NAME_OF_A_COMPANY in person.words


async def test_the_operators_link_refuses_the_names_of_all_companies(
    site: Site, attacker: Company
) -> None:
    await site.join(await make_company(site.environment, name="First Trading"), ACCOUNTANT)
    await site.invite(attacker)
    link = await site.operator_link()
    for password in ("attacker sdn bhd", "FirstTrading26"):
        async with await site.open(link, password) as person:
            assert person.status == 422 and NAME_OF_A_COMPANY in person.words


async def test_a_changed_password_is_the_name_of_no_company(site: Site, attacker: Company) -> None:
    await site.join(await make_company(site.environment, name="First Trading"), ACCOUNTANT)
    await site.join(attacker, ACCOUNTANT)
    async with await site.sign_in(ACCOUNTANT) as person:
        for password in ("attacker sdn bhd", "FirstTrading26"):
            await person.fill_in("/password", {"current": PASSWORD, "password": password})
            assert person.status == 422 and NAME_OF_A_COMPANY in person.words


# Refusing


@pytest.mark.parametrize("is_pending", [True, False])
async def test_a_link_refuses_only_a_pending_role(
    site: Site, attacker: Company, owner: asyncpg.Connection, is_pending: bool
) -> None:
    """A link for a forgotten password refuses nothing."""
    await site.join(site.company, ACCOUNTANT)
    link = await site.invite(attacker if is_pending else site.company, "owner")
    async with await site.open(link) as person:
        await person.post(URL(link).path, {"do": "refuse"})
        assert person.status == (200 if is_pending else 422)
        assert ("You have refused the role." in person.words) == is_pending
        await person.get(URL(link).path)
        assert person.status == (404 if is_pending else 200)
    assert await list_roles(owner) == {site.company.id: True}


async def test_a_pending_role_is_refused_in_the_list(
    site: Site, attacker: Company, owner: asyncpg.Connection
) -> None:
    await site.join(site.company, ACCOUNTANT)
    link = await site.invite(attacker)
    async with await site.sign_in(ACCOUNTANT) as person:
        assert "Attacker Sdn. Bhd." in await person.read_words("/companies")
        await person.post(f"/companies/{attacker.id}/leave")
        assert "You no longer have a role in that company." in person.words
    assert await list_roles(owner) == {site.company.id: True}
    async with await site.open(link) as person:
        assert person.status == 404


async def test_a_forged_company_is_neither_shown_nor_left(
    site: Site, attacker: Company, owner: asyncpg.Connection
) -> None:
    await site.join(attacker, "boss@example.com")
    await site.join(site.company, ACCOUNTANT)
    async with await site.sign_in(ACCOUNTANT) as person:
        for company in (attacker.id, 999_999_999):
            await person.fill_in("/companies", {"company": str(company)})
            assert person.status == 404
            await person.get("/settings/keys")
            assert site.company.key_id in person.text
            await person.post(f"/companies/{company}/leave")
            assert person.status == 404
    assert await owner.fetchval("select count(*) from company_members") == 2


# The password is entered again


async def test_people_are_changed_only_after_the_password_was_entered(
    site: Site, boss: Visitor, owner: asyncpg.Connection
) -> None:
    await site.join(site.company, ACCOUNTANT, "member")
    user_id = await owner.fetchval("select id from users where email = $1", ACCOUNTANT)
    own = {"email": ACCOUNTANT, "name": "A", "role": "owner"}
    forms = (
        ("/settings/people", {"email": "x@example.com", "name": "X", "role": "owner"}),
        ("/settings/people", {"email": "x@example.com", "name": "X", "role": "reader"}),
        ("/settings/people", own),
        (f"/settings/people/{user_id}/role", {"role": "owner"}),
        (f"/settings/people/{user_id}/link", {}),
        (f"/settings/people/{user_id}/remove", {}),
    )
    await boss.get("/settings/people")
    assert all(f'action="{path}"' in boss.text for path, _ in forms)
    await owner.execute(
        "update user_sessions set authenticated_at = authenticated_at - interval '11 minutes'"
    )
    for path, fields in forms:
        await boss.fill_in("/companies", fields, path=path)
        assert boss.status == 401 and f'name="next" value="{path}"' in boss.text
    await boss.get("/settings/people")
    assert 'action="/settings/people' not in boss.text
    assert 'href="/confirm?next=/settings/people"' in boss.text
    assert await list_roles(owner) == {site.company.id: True}
    assert await owner.fetchval("select count(*) from user_links where used_at is null") == 0
    await boss.fill_in(
        "/confirm?next=/settings/people",
        {"password": PASSWORD, "next": "/settings/people"},
        path="/confirm",
    )
    await boss.post("/settings/people", own)
    assert "The person has the role now." in boss.words


async def test_a_link_that_asks_for_nothing_is_no_entered_password(
    site: Site, owner: asyncpg.Connection
) -> None:
    await site.join(site.company, ACCOUNTANT)
    config = read_config(site.environment)
    async with connected_pool(config.database_url, 1) as pool:
        user_id = await owner.fetchval("select id from users")
        assert user_id is not None
        new = NewLink(user_id, site.company.id, purpose=SIGN_IN)
        link = await make_link(Database(pool), "http://127.0.0.1", new)
    async with await site.open(link, "") as visitor:
        assert visitor.path == "/"
        fields = {"email": "x@example.com", "name": "X", "role": "owner"}
        await visitor.post("/settings/people", fields)
        assert visitor.status == 401 and "Enter your password again" in visitor.words


# Owners


async def test_a_pending_owner_is_not_the_owner_that_a_company_needs(
    site: Site, owner: asyncpg.Connection
) -> None:
    await site.join(site.company, "boss@example.com")
    await site.invite(site.company, "owner")
    async with await site.sign_in("boss@example.com") as boss:
        await boss.fill_in("/companies", path=f"/companies/{site.company.id}/leave")
        assert boss.status == 409
        await boss.get("/settings/people")
        fields = {"email": "boss@example.com", "name": "B", "role": "reader"}
        await boss.post("/settings/people", fields)
        assert boss.status == 409
    assert await owner.fetchval("select count(*) from company_members where role = 'owner'") == 2


async def test_a_pending_owner_can_be_removed_and_refuse(site: Site, attacker: Company) -> None:
    """The only owner of a company may be pending, after the operator's link."""
    await site.join(site.company, ACCOUNTANT)
    await site.join(attacker, ACCOUNTANT)
    async with await site.open(await site.operator_link(), OWN) as person:
        assert person.path == "/companies"
        await person.get("/settings/people")
        assert person.path == "/companies"
        for company in (site.company, attacker):
            await person.post(f"/companies/{company.id}/leave")
            assert person.status == 200
        assert "No company has given you a role." in person.words


async def test_the_operators_invitation_gives_the_company_its_owner_again(site: Site) -> None:
    await site.join(site.company, ACCOUNTANT)
    async with await site.open(await site.operator_link(), OWN):
        pass
    config = read_config(site.environment)
    made = await run_command(
        config, invite_user, site.company.id, "owner", email=ACCOUNTANT, name="A"
    )
    async with await site.open(made["link"], "new words of the accountant") as person:
        assert person.path == "/" and await may_enter(person, site.company)


@pytest.mark.parametrize("others", [(True,), (False,), (True, False)])
def test_a_link_to_a_pending_role_never_chooses_a_password_of_others(
    others: tuple[bool, ...],
) -> None:
    roles = [Role(8 + n, "Other", "owner", each) for n, each in enumerate(others)]
    link = Link(
        b"",
        1,
        "A",
        ACCOUNTANT,
        "hash",
        "password",
        7,
        datetime.now(UTC),
        [Role(7, "Own", "reader", False), *roles],
    )
    assert link.step == CONFIRM
