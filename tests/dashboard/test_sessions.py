"""Sign-in, sessions, roles, and the protection of forms."""

import asyncio
import cProfile
import unicodedata
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from yarl import URL

from service.config import Config
from service.dashboard.passwords import find_weakness, hash_password, matches_hash
from tests.api_invoices import create_invoice
from tests.api_requests import expect
from tests.conftest import Client, Company, StartService
from tests.harness.visitors import PASSWORD, Visitor, make_person

EMAIL = "aminah@example.com"


@pytest.fixture
async def site(idle: Client) -> URL:
    """The address of a service without background work."""
    return idle.make_url("/")


@pytest.fixture
async def owner(site: URL, company: Company, config: Config) -> AsyncIterator[Visitor]:
    """An owner of the company who has signed in by a link."""
    link = await make_person(config, company.id, EMAIL, "owner")
    async with Visitor(site) as visitor:
        await visitor.use_link(link)
        yield visitor


async def test_a_link_signs_in_once(site: URL, company: Company, config: Config) -> None:
    link = await make_person(config, company.id, EMAIL, "owner")
    async with Visitor(site) as first, Visitor(site) as second:
        await first.use_link(link)
        assert first.status == 200 and first.path == "/"
        await second.get(URL(link).path)
        assert second.status == 404


async def test_a_password_is_chosen_by_a_link_and_signs_in(owner: Visitor, site: URL) -> None:
    async with Visitor(site) as visitor:
        await visitor.sign_in(EMAIL.upper())
        assert visitor.path == "/" and visitor.status == 200
    async with Visitor(site) as visitor:
        await visitor.sign_in(EMAIL, "another password")
        unknown = await _refusal(site, "nobody@example.com")
        assert visitor.status == 401
        assert "The email address or the password is wrong." in visitor.text
        assert "The email address or the password is wrong." in unknown


async def _refusal(site: URL, email: str) -> str:
    async with Visitor(site) as visitor:
        return await visitor.sign_in(email, "another password")


@pytest.mark.parametrize("email", ["", "nobody", "a" * 300 + "@example.com"])
async def test_tries_with_an_invalid_address_count_for_no_limit(site: URL, email: str) -> None:
    async with Visitor(site) as visitor:
        for _ in range(11):
            await visitor.sign_in(email, "wrong")
            assert visitor.status == 401
            assert "The email address or the password is wrong." in visitor.text
        await visitor.sign_in("nobody@example.com", "wrong")
        assert visitor.status == 401


async def test_sign_out_ends_the_session_in_the_database(owner: Visitor, site: URL) -> None:
    cookies = owner.cookies
    await owner.post("/sign-out")
    assert "You are signed out." in owner.text
    async with Visitor(site) as thief:
        thief._session.cookie_jar.update_cookies(cookies, site)
        await thief.get("/")
        assert thief.path == "/sign-in"


async def test_a_changed_password_ends_the_other_sessions(owner: Visitor, site: URL) -> None:
    async with Visitor(site) as first, Visitor(site) as second:
        await first.sign_in(EMAIL)
        await second.sign_in(EMAIL)
        await first.fill_in(
            "/password", {"current": PASSWORD, "password": "other words that I chose"}
        )
        assert "Your password is changed." in first.text
        await second.get("/")
        assert second.path == "/sign-in"
        await first.get("/invoices")
        assert first.path == "/invoices"


@pytest.mark.parametrize("role", [None, "reader"])
async def test_a_removed_or_changed_role_ends_the_session_in_every_process(
    site: URL, start: StartService, company: Company, role: str | None, config: Config
) -> None:
    other = await start(background=False)
    link = await make_person(config, company.id, "siti@example.com", "admin")
    owner_link = await make_person(config, company.id, EMAIL, "owner")
    async with Visitor(site) as member, Visitor(site) as owner:
        await member.use_link(link)
        await owner.use_link(owner_link)
        await owner.get("/settings/people")
        if role:
            fields = {"email": "siti@example.com", "name": "Siti", "role": role}
            await owner.post("/settings/people", fields)
        else:
            user_id = _find_person(owner.text, "siti@example.com")
            await owner.post(f"/settings/people/{user_id}/remove")
        assert owner.status == 200
        async with Visitor(other.make_url("/")) as elsewhere:
            elsewhere._session.cookie_jar.update_cookies(member.cookies, other.make_url("/"))
            await elsewhere.get("/")
            assert elsewhere.path == "/sign-in"


def _find_person(text: str, email: str) -> str:
    row = text[text.index(email) :]
    return row.split("/settings/people/")[1].split("/")[0]


async def test_a_form_from_another_site_is_rejected(owner: Visitor) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        await owner.get("/settings/keys")
        await owner.post("/sign-out", headers=headers)
        assert owner.status == 403


async def test_an_admin_cannot_make_owners_or_links_for_them(
    owner: Visitor, site: URL, company: Company, config: Config
) -> None:
    link = await make_person(config, company.id, "siti@example.com", "admin")
    await owner.get("/settings/people")
    owner_id = _find_person(owner.text, EMAIL)
    async with Visitor(site) as admin:
        await admin.use_link(link)
        await admin.get("/settings/people")
        for path, fields in (
            ("/settings/people", {"email": "x@example.com", "name": "X", "role": "owner"}),
            ("/settings/people", {"email": EMAIL, "name": "X", "role": "reader"}),
            (f"/settings/people/{owner_id}/link", {}),
            (f"/settings/people/{owner_id}/remove", {}),
        ):
            await admin.fill_in("/settings/people", fields, path=path)
            assert (path, fields, admin.status) == (path, fields, 403)


async def test_the_last_owner_stays(owner: Visitor) -> None:
    await owner.get("/settings/people")
    await owner.post(f"/settings/people/{_find_person(owner.text, EMAIL)}/remove")
    assert owner.status == 409
    await owner.fill_in("/settings/people", {"email": EMAIL, "name": "X", "role": "reader"})
    assert owner.status == 409


@pytest.mark.parametrize("email", [EMAIL.upper(), f" {EMAIL.title()} "])
async def test_an_address_in_other_case_is_the_same_person(
    owner: Visitor, site: URL, company: Company, email: str, config: Config
) -> None:
    link = await make_person(config, company.id, "siti@example.com", "admin")
    async with Visitor(site) as admin:
        await admin.use_link(link)
        for visitor, status in ((admin, 403), (owner, 409)):
            await visitor.fill_in(
                "/settings/people", {"email": email, "name": "X", "role": "reader"}
            )
            assert visitor.status == status
    await owner.get("/settings/people")
    assert owner.status == 200 and owner.text.count(f"<bdi>{EMAIL}</bdi>") == 1


async def test_two_owners_who_remove_each_other_leave_one(
    site: URL, company: Company, config: Config
) -> None:
    emails = (EMAIL, "siti@example.com")
    for _ in range(5):
        async with Visitor(site) as first, Visitor(site) as second:
            for visitor, email in zip((first, second), emails, strict=True):
                link = await make_person(config, company.id, email, "owner")
                await visitor.use_link(link)
            for visitor in (first, second):
                await visitor.get("/settings/people")
            others = [_find_person(first.text, email) for email in reversed(emails)]
            await asyncio.gather(
                first.post(f"/settings/people/{others[0]}/remove"),
                second.post(f"/settings/people/{others[1]}/remove"),
            )
            for visitor in (first, second):
                await visitor.get("/settings/people")
            assert sorted((first.path, second.path)) == ["/settings/people", "/sign-in"]


@pytest.mark.parametrize(
    "password, weakness",
    [
        ("short", "too_short"),
        ("x" * 129, "too_long"),
        ("password1234", "common"),
        ("123456789012", "common"),
        ("aaaaaaaaaaaaaa", "common"),
        ("qwertyuiopasdf", "common"),
        ("P@ssw0rd2026!", "common"),
        ("correcthorsebatterystaple" * 4 + "x", None),
        ("AminahAminah1", "about_you"),
        ("x" * 100 + "\ufdfa" * 20, "too_long"),
        (PASSWORD, None),
    ],
)
def test_weak_passwords_are_refused(password: str, weakness: str | None) -> None:
    assert find_weakness(password, ("Aminah", EMAIL)) == weakness


@pytest.mark.parametrize(
    ("password", "name"),
    [
        ("Kopi & Co Enterprise", "Kopi & Co. Enterprise"),
        ("kopi-co-enterprise!", "KOPI & CO. ENTERPRISE"),
        ("ABCSdnBhd2026", "ABC Sdn. Bhd."),
        ("a.b.c. sdn. bhd.", "ABC Sdn Bhd"),
        ("\uff21\uff22\uff23 Sdn Bhd 26", "ABC Sdn. Bhd."),
        ("abc sdn bhd 26", "\uff21\uff22\uff23 Sdn. Bhd."),
        ("Siti bt. Ali 2026", "siti.bt.ali@example.com"),
        ("siti_bt_ali_26", "Siti bt Ali"),
        ("siti.bt.ali@example.com", "siti.bt.ali@example.com"),
        ("Stra\u00dfe STRASSE", "STRASSE"),
        ("MajuJaya2026", "Maju Jaya Sdn. Bhd."),
        ("2025 maju-jaya 2026!", "Maju Jaya Sdn. Bhd."),
        ("aminah Maju 12345", "Maju Jaya Sdn. Bhd."),
    ],
)
def test_a_name_in_other_case_and_punctuation_is_no_password(password: str, name: str) -> None:
    assert find_weakness(password, ("Aminah", name)) == "about_you"


@pytest.mark.parametrize("name", ["", "A", "&", "Co.", "@", "@@", "(*[", "K\u0e34n\u0e35"])
def test_a_short_name_or_one_of_signs_refuses_nothing(name: str) -> None:
    for password in (PASSWORD, "!#%siti^&*()$@!!", "(*[(*[-+)(*&"):
        assert find_weakness(password, (name,)) is None


async def test_a_long_password_is_wrong_although_it_begins_with_the_right_one() -> None:
    right = "four plain words " * 7 + "together!"
    digest = await hash_password(right)
    assert len(right) == 128
    assert await matches_hash(right, digest)
    assert not await matches_hash(f"{right}!", digest)


@pytest.mark.parametrize("letters", ["\u0301\u0316", "\ufdfa", "\u0345\u0301"])
async def test_passwords_of_any_length_take_little_processor_time(
    letters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of NFKC grows with the square of the length of a text."""
    text, lengths, normalize = letters * 40_000, set[int](), unicodedata.normalize

    def note_length(form: Any, part: str) -> str:
        lengths.add(len(part))
        return normalize(form, part)

    digest = await hash_password(PASSWORD)
    monkeypatch.setattr(unicodedata, "normalize", note_length)
    assert find_weakness(text, ("Aminah", EMAIL)) == "too_long"
    assert not await matches_hash(text, digest)
    assert max(lengths) == 128


@pytest.mark.parametrize("signs", ["4@({[1!|7+", "4@8({[<3691!|70$5+%2eaost"])
def test_judging_a_password_takes_bounded_time(signs: str) -> None:
    """Signs that can be letters are read in all combinations, which takes many calls."""
    profile = cProfile.Profile()
    profile.runcall(find_weakness, (signs * 13)[:128], ("Aminah", EMAIL))
    assert sum(each.callcount for each in profile.getstats()) < 100_000


async def test_a_revoked_key_stops_working(owner: Visitor, site: URL) -> None:
    await owner.fill_in("/settings/keys", {"name": "shop"})
    key = owner.text.split('id="new-key">')[1].split("<")[0]
    headers = {"X-API-Key": key}
    url = site.join(URL("/api/invoices"))
    await expect(owner._session, 200, "GET", url, headers=headers)
    await owner.post(f"/settings/keys/{key.split('_')[2]}/revoke")
    assert "The key is revoked." in owner.text
    async with asyncio.timeout(10):
        while True:
            async with owner._session.get(url, headers=headers) as response:
                if response.status == 401:
                    return


@pytest.mark.parametrize(
    "name",
    [
        "/lineItems",
        "/lineItems/x/y",
        "/lineItems/999999/description",
        "/lineItems/0/classifications/77777777",
        "/a/b/c/d/0/1/2/3",
        "/=",
    ],
)
async def test_fields_that_no_form_has_are_ignored(owner: Visitor, name: str) -> None:
    await owner.fill_in("/invoices/new", {name: "1", "/type": "INVOICE"})
    assert owner.status == 422


@pytest.mark.parametrize("choice", ["remove:²", "remove:", "remove:99999999999", "remove:-1"])
async def test_a_button_that_no_form_has_saves(owner: Visitor, choice: str) -> None:
    await owner.fill_in("/invoices/new", {"/type": "INVOICE", "do": choice})
    assert owner.status == 422


@pytest.mark.parametrize("text", ["1e99999999", "1e999999999999", "²", "٣", "NaN", "1" * 5000])
async def test_a_text_that_is_no_number_is_a_violation(owner: Visitor, text: str) -> None:
    await owner.fill_in("/invoices/new", {"/type": "INVOICE", "/lineItems/0/unit/price": text})
    assert owner.status == 422 and 'id="/lineItems/0/unit/price-wrong"' in owner.text


@pytest.mark.parametrize(
    "path, status",
    [("/nothing", 404), ("/invoices/x", 404), ("/settings/x/y", 404), ("/invoices/1/submit", 405)],
)
async def test_an_unknown_page_is_an_error_page_for_people_and_json_for_programs(
    site: URL, path: str, status: int
) -> None:
    async with aiohttp.ClientSession() as session:
        for accept, kind in (("text/html", "text/html"), ("*/*", "application/json")):
            async with session.get(site.join(URL(path)), headers={"Accept": accept}) as response:
                assert (response.status, response.content_type) == (status, kind)


async def test_the_role_of_a_person_is_changed_in_the_list(
    owner: Visitor, company: Company, config: Config
) -> None:
    await make_person(config, company.id, "siti@example.com", "member")
    await owner.get("/settings/people")
    assert 'aria-label="Role of siti"' in owner.text
    fields = {"email": "siti@example.com", "name": "siti", "role": "admin"}
    await owner.post("/settings/people", fields)
    await owner.get("/settings/people")
    row = owner.text[owner.text.index('aria-label="Role of siti"') :]
    assert 'value="admin" selected' in row.partition("</select>")[0]


async def test_an_invitation_that_is_not_valid_keeps_its_entries(owner: Visitor) -> None:
    await owner.fill_in("/settings/people", {"email": "siti", "name": "Siti", "role": "admin"})
    assert owner.status == 422 and 'value="Siti"' in owner.text and 'value="siti"' in owner.text


async def test_previews_of_numbers_follow_the_codes_of_each_kind(
    owner: Visitor, start: StartService
) -> None:
    await create_invoice(await start(background=False), code=4711)
    await owner.get("/settings/numbers")
    assert "Next: INV-04712" in owner.words and "Next: SB-04712" in owner.words
    assert "Next: CI-00001" in owner.words and "Next: CN-00001" in owner.words


async def test_pages_of_a_company_have_a_limit_apart_from_its_keys(
    start: StartService, company: Company, config: Config
) -> None:
    """A flood by an integration locks no person out; people of one company share a limit."""
    api = await start(background=False, REQUESTS_PER_MINUTE="6")
    statuses = [(await api.get("/api/invoices")).status for _ in range(7)]
    assert statuses == [200] * 6 + [429]
    found: list[int] = []
    for name in ("aminah", "bakar"):
        link = await make_person(config, company.id, f"{name}@example.com", "owner")
        async with Visitor(api.make_url("/")) as visitor:
            await visitor.use_link(link)
            found.append(visitor.status)
            for _ in range(3):
                await visitor.get("/invoices")
                found.append(visitor.status)
    assert found == [200] * 6 + [429] * 2
