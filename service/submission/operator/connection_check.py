"""The check of the connection to the portal, step by step, as `check-portal` shows it.

It sends no document. Each step uses the code that does the same for documents: the login, the
comparison of clocks, the TIN check, the company's readiness and the signer.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from service import json_codec
from service.config import SETTINGS
from service.db.statements import sql
from service.documents import codes
from service.documents.states import TIN_NOT_VERIFIED
from service.documents.ubl import parties
from service.errors import ApiError, UnknownTin
from service.http.code_lists import read_tables
from service.json_types import JsonMapping, Row
from service.portal import addresses
from service.portal.client import Portal
from service.portal.errors import LoginRefused, PortalError, Throttled
from service.portal.logins import WHAT_THE_COMPANY_DOES, WHAT_TO_DO, Login, RefusedLogins
from service.submission import own_clients
from service.submission.context import SubmissionContext
from service.submission.operator.tin_checks import TinChecks, make_own_question
from service.submission.own_clients import describe_refusal

#: Field of an address -> name of the step that connects to it.
CONNECTIONS = {
    "portal_api_base": "API address",
    "portal_identity_base": "login address",
    "portal_web_base": "pages address",
}
#: What to do about a refused login of the operator's client for a company.
CHECK_APPOINTMENT = (
    "At the portal, the taxpayer must appoint the operator as its intermediary, for a period that "
    "includes today, with the permissions to submit, view and cancel documents. Then run "
    "`run.py retry-logins --tin {tin}`."
)
NO_REQUESTS = "No request is sent before the addresses are correct and reachable."
NO_OPERATOR = "The operator's own login does not work."
UNVERIFIED = "The service requests nothing for a TIN that is missing or not verified."
VERIFY = "Confirm it with `run.py verify-tin --company {id} --tin {tin}`."
COMPLETE = "The company completes its profile: dashboard, Settings, Company, or PUT /api/companies."
INSTALL = "Install another one: docs/go-live.md, Signing certificate."
#: The code lists that grow with each release of the authority.
LONG_LISTS = ("msic", "units")
#: Members of a company that its TIN check needs.
IDENTITY = ("/tin_code", "/registration_number", "/registration_type")

State = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class CheckStep:
    """One check: `text` says what was found, or what is wrong and what to do."""

    name: str
    state: State
    text: str

    @property
    def is_ok(self) -> bool:
        return self.state == "ok"


@dataclass(frozen=True, slots=True)
class _Company:
    """A company: its record of the API, its row as an issuer, and its own client, if any."""

    id: int
    record: JsonMapping
    issuer: Row
    own: Login | None

    @property
    def tin(self) -> str:
        return parties.normalize_tin(self.record["tin_code"])

    @property
    def has_own_login(self) -> bool:
        """Return whether the company's own client is used, which belongs to one TIN."""
        return self.own is not None and self.own.own_tin == self.tin

    def lacks(self, *members: str) -> bool:
        """Return whether the company is not ready because of one of the members."""
        return any(each["path"] in members for each in self.record["readiness"])


class ConnectionCheck:
    """Checks the portal first, then any number of companies. Close it at the end."""

    def __init__(self, context: SubmissionContext) -> None:
        self._context = context
        self._config = context.config
        self._tin_checks = TinChecks(context)
        self._can_request = False
        self._operator_works = False

    async def close(self) -> None:
        """Cancel requests that continue in the background."""
        await self._tin_checks.close()

    async def check_portal(self) -> AsyncGenerator[CheckStep, None]:
        """Yield the steps that are independent of companies."""
        known = self._check_addresses()
        yield known
        if known.is_ok:
            connections = await asyncio.gather(*map(self._check_connection, CONNECTIONS))
            for step in connections:
                yield step
            api, login, _ = connections
            self._can_request = api.is_ok and login.is_ok
        yield await self._check_clocks()
        operator = await self._check_operator_login()
        self._operator_works = operator.is_ok
        yield operator
        yield await self._check_configured_certificate()
        yield await self._check_code_lists()

    async def check_company(self, company_id: int) -> AsyncGenerator[CheckStep, None]:
        """Yield the steps of an existing company. Call `check_portal` before."""
        company = await self._load(company_id)
        yield _check_profile(company)
        login = await self._check_company_login(company)
        yield login
        yield await self._check_tin(company, login)
        yield await self._check_certificate(company)

    # The portal

    def _check_addresses(self) -> CheckStep:
        problems = addresses.find_address_problems(self._config)
        found = addresses.get_environment(self._config.portal_api_base)
        return _judge(
            "addresses", " ".join(problems), found or "not those of a published environment"
        )

    async def _check_connection(self, field: str) -> CheckStep:
        """Connect to an address. The service itself requests nothing of the pages."""
        address = getattr(self._config, field)
        probe = addresses.look_up if field == "portal_web_base" else addresses.connect
        seconds = self._config.portal_connect_timeout
        problem = await addresses.find_problem(field, address, seconds, probe)
        return _judge(CONNECTIONS[field], problem, address)

    async def _check_clocks(self) -> CheckStep:
        if not self._can_request:
            return CheckStep("clock", "skipped", NO_REQUESTS)
        portal = await self._context.shared_portal.read_clock("")
        database = await self._context.read_database_clock()
        if portal is None or database is None:
            text = f"{SETTINGS['portal_api_base'].variable} answers without a date. Correct it."
            return CheckStep("clock", "failed", text)
        shared_portal = self._context.shared_portal
        if apart := await self._context.compare_clocks(shared_portal, "", database):
            text = f"{apart['message']} Synchronise the database server's (NTP)."
            return CheckStep("clock", "failed", text)
        seconds = abs(portal.ahead_of(database).total_seconds())
        return CheckStep("clock", "ok", f"{seconds:.0f} s between the portal and the database.")

    async def _check_operator_login(self) -> CheckStep:
        if not self._can_request:
            return CheckStep("login", "skipped", NO_REQUESTS)
        problem = await self._log_in(self._context.portal_for(None), "", None, WHAT_TO_DO["login"])
        accepted = "The portal accepts PORTAL_CLIENT_ID and PORTAL_CLIENT_SECRET."
        return _judge("login", problem, accepted)

    async def _check_configured_certificate(self) -> CheckStep:
        now: datetime = await self._context.database.call(sql.database_now)
        problems = self._context.signers.find_configured_problems(now)
        name = "configured certificate"
        if problems is None:
            return CheckStep(
                name, "skipped", "No document is signed with a configured certificate."
            )
        return _judge_certificate(name, problems)

    async def _check_code_lists(self) -> CheckStep:
        tables = {table.name: table for table in await self._context.database.call(read_tables)}
        used = {**{name: codes.BUILT_IN[name] for name in LONG_LISTS}, **tables}
        loaded = [f"{name}, {len(each.codes)}, of {each.day}" for name, each in used.items()]
        return CheckStep("code lists", "ok", "; ".join(loaded))

    # A company

    async def _load(self, company_id: int) -> _Company:
        async with self._context.database.reading(company_id) as conn:
            record = await sql.company_get(conn)
            issuer = await sql.issuer_get(conn)
        own = await own_clients.load(self._context.database, self._config, company_id)
        return _Company(company_id, json_codec.loads(record.encode()), issuer, own)

    async def _check_company_login(self, company: _Company) -> CheckStep:
        """Log in as for the company's documents."""
        name = "intermediary" if self._config.portal_intermediary else "company login"
        if company.own:
            name = "own login"
        if company.own and not company.has_own_login:
            text = f"The company's own credentials belong to the TIN {company.own.own_tin}, not to "
            return CheckStep(name, "failed", f"{text}{company.tin}. {WHAT_THE_COMPANY_DOES}")
        if obstacle := self._find_obstacle(company):
            return CheckStep(name, "skipped", obstacle)
        if not company.own and not self._config.portal_intermediary:
            text = "PORTAL_INTERMEDIARY is false: the operator's client acts for its own TIN only."
            return CheckStep(name, "ok", text)
        action = CHECK_APPOINTMENT.format(tin=company.tin)
        action = WHAT_THE_COMPANY_DOES if company.own else action
        portal = self._context.portal_for(company.own)
        owner = company.id if company.own else None
        problem = await self._log_in(portal, company.tin, owner, action)
        return _judge(name, problem, f"The portal accepts a login for the TIN {company.tin}.")

    def _find_obstacle(self, company: _Company) -> str:
        """Return why no request can be made for a company, or an empty string."""
        if not self._can_request:
            return NO_REQUESTS
        if company.lacks("/tin_code"):
            return UNVERIFIED
        return "" if company.own or self._operator_works else NO_OPERATOR

    async def _check_tin(self, company: _Company, login: CheckStep) -> CheckStep:
        """Ask the portal for the company's own TIN, as the dashboard's test does."""
        if not login.is_ok:
            return CheckStep("TIN", "skipped", "It needs a login.")
        if company.lacks(*IDENTITY):
            return CheckStep("TIN", "skipped", "It needs the registration number of the profile.")
        question = make_own_question(company.id, company.record)
        pair = f"TIN {question.tin} with {question.id_type} {question.id_value}"
        try:
            await self._tin_checks.confirm(question, fresh=True)
        except UnknownTin:
            text = f"The portal does not know the {pair}. Correct the company's profile."
            return CheckStep("TIN", "failed", text)
        except ApiError as error:
            return CheckStep("TIN", "failed", error.message)
        return CheckStep("TIN", "ok", f"The portal knows the {pair}.")

    async def _check_certificate(self, company: _Company) -> CheckStep:
        names_issuer = company.has_own_login or not self._config.portal_intermediary
        async with self._context.database.reading(company.id) as conn:
            problems = await self._context.signers.find_problems(
                conn, company.id, company.issuer, names_issuer
            )
        if problems is None:
            text = f"Documents of version {self._config.portal_document_version} are not signed."
            return CheckStep("certificate", "skipped", text)
        return _judge_certificate("certificate", problems)

    async def _log_in(self, portal: Portal, tin: str, owner: int | None, action: str) -> str | None:
        """Return why a login fails, with what to do, or None.

        `owner` is the company to whom the credentials belong, None for the operator's.
        """
        try:
            await portal.log_in(tin)
        except LoginRefused as error:
            # The portal's words are stored, and shown also during the pause.
            rows = await RefusedLogins(self._context.database, self._config).listed()
            stored = {(row["company_id"], row["taxpayer"]): row["message"] for row in rows}
            return f"{stored.get((owner, tin)) or describe_refusal(error)} {action}"
        except Throttled as error:
            return f"{error.reason} Check again in a minute."
        except PortalError as error:
            return f"{error.reason} Check again in a minute; if it lasts, ask the portal's support."
        return None


def _judge(name: str, problem: str | None, found: str) -> CheckStep:
    """Return the step of a check that has failed if there is a problem."""
    return CheckStep(name, "failed" if problem else "ok", problem or found)


def _judge_certificate(name: str, problems: list[str]) -> CheckStep:
    problem = f"{' '.join(problems)} {INSTALL}" if problems else None
    return _judge(name, problem, "It is valid and can sign.")


def _check_profile(company: _Company) -> CheckStep:
    """Return the step of the fields that a document needs of its issuer."""
    problems = company.record["readiness"]
    if not problems:
        return CheckStep("profile", "ok", f"{company.record['name']}, TIN {company.tin}")
    texts = [each["message"] for each in problems]
    if any(each["code"] == TIN_NOT_VERIFIED["code"] for each in problems):
        texts.append(VERIFY.format(id=company.id, tin=company.tin))
    if any(each["code"] != TIN_NOT_VERIFIED["code"] for each in problems):
        texts.append(COMPLETE)
    return CheckStep("profile", "failed", " ".join(texts))
