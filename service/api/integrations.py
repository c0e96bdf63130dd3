"""Users and organizations of the account that an integration key belongs to. Spec: Integration surface."""

import re

from aiohttp import web

from service import json_codec, schema
from service.api import pagination
from service.db.statements import sql
from service.errors import ValidationError, violation
from service.http import app_keys, responses
from service.http.api_keys import random_text
from service.http.idempotency import store_response
from service.http.requests import check_if_match, or_not_found, read_body, text_id

routes = web.RouteTableDef()

USER, ORGANIZATION = "User", "Organization"
USER_ID = re.compile(r"usr_[0-9A-Za-z]{22}", re.ASCII)
ORGANIZATION_ID = re.compile(r"org_[0-9A-Za-z]{22}", re.ASCII)
FILTERS = {"query": pagination.words}
SORTS = (pagination.NEWEST_FIRST,)


def new_user_id():
    return f"usr_{random_text(22)}"


def new_organization_id():
    return f"org_{random_text(22)}"


@routes.get("/api/integrations/users")
async def list_users(request):
    return await _listed(request, sql.integration_user_page)


@routes.get("/api/integrations/users/{id}")
async def get_user(request):
    account, id = request[app_keys.ACCOUNT], text_id(request, USER, USER_ID)
    async with request.app[app_keys.DATABASE].reading_account(account) as conn:
        return responses.record_response(
            request,
            or_not_found(await sql.integration_user_get(conn, account_id=account, id=id), USER),
        )


@routes.post("/api/integrations/users")
async def create_user(request):
    """Answers with the record. Raises Conflict when another user of the account has the address."""
    body, _ = await read_body(request, "integration_user_create")
    account, id = request[app_keys.ACCOUNT], new_user_id()
    async with request.app[app_keys.DATABASE].account(account) as conn:
        await sql.integration_user_insert(conn, account_id=account, id=id, **body)
        answer = responses.json_text_response(
            await sql.integration_user_get(conn, account_id=account, id=id), 201
        )
        await store_response(request, conn, answer)
    return answer


@routes.put("/api/integrations/users/{id}")
async def update_user(request):
    """Change what is sent, and answer with the record. Raises Conflict as create_user."""
    body, _ = await read_body(request, "integration_user_update")
    account, id = request[app_keys.ACCOUNT], text_id(request, USER, USER_ID)
    changes = {"name": body.get("name"), "email": body.get("email")}
    async with request.app[app_keys.DATABASE].account(account) as conn:
        or_not_found(await sql.integration_user_lock(conn, account_id=account, id=id), USER)
        await check_if_match(request, conn, sql.integration_user_get, account_id=account, id=id)
        await sql.integration_user_update(conn, account_id=account, id=id, **changes)
        return responses.json_text_response(
            await sql.integration_user_get(conn, account_id=account, id=id)
        )


@routes.get("/api/integrations/users/{id}/organizations")
async def list_user_organizations(request):
    """All of them: the specification gives this list no pages, so that `count` is `total`."""
    account, id = request[app_keys.ACCOUNT], text_id(request, USER, USER_ID)
    async with request.app[app_keys.DATABASE].reading_account(account) as conn:
        or_not_found(await sql.integration_user_exists(conn, account_id=account, id=id), USER)
        row = await sql.integration_user_organizations(conn, account_id=account, id=id)
    return _with_meta(row["data"], {"total": row["total"], "count": row["total"]})


@routes.get("/api/integrations/organizations")
async def list_organizations(request):
    return await _listed(request, sql.organization_page)


@routes.get("/api/integrations/organizations/{id}")
async def get_organization(request):
    account, id = request[app_keys.ACCOUNT], text_id(request, ORGANIZATION, ORGANIZATION_ID)
    async with request.app[app_keys.DATABASE].reading_account(account) as conn:
        return responses.record_response(
            request,
            or_not_found(await sql.organization_get(conn, account_id=account, id=id), ORGANIZATION),
        )


@routes.put("/api/integrations/organizations/{id}")
async def update_organization(request):
    """Change what is sent, and answer with the record; `members` replaces the whole membership.

    Raises Invalid for a member who is no user of the account, or is named twice.
    """
    body, text = await read_body(request, "integration_organization_update")
    account, id = request[app_keys.ACCOUNT], text_id(request, ORGANIZATION, ORGANIZATION_ID)
    async with request.app[app_keys.DATABASE].account(account) as conn:
        or_not_found(await sql.organization_lock(conn, account_id=account, id=id), ORGANIZATION)
        await check_if_match(request, conn, sql.organization_get, account_id=account, id=id)
        await sql.organization_update(conn, account_id=account, id=id, body=text)
        if "members" in body:
            await _replace_members(conn, account, id, body["members"])
        return responses.json_text_response(
            await sql.organization_get(conn, account_id=account, id=id)
        )


async def _replace_members(conn, account, id, members):
    users = [member["userId"] for member in members]
    unknown = await sql.organization_members_unknown(conn, account_id=account, users=users)
    faults = [
        _member_fault(row["place"], "exists", "is no user of this account") for row in unknown
    ]
    again = [place for place, user in enumerate(users) if users.index(user) < place]
    faults += [_member_fault(place, "unique", "is named twice") for place in again]
    if faults:
        raise ValidationError(faults[: schema.MAX_FAULTS])
    roles = [member.get("role") for member in members]
    await sql.organization_members_put(conn, account_id=account, id=id, users=users, roles=roles)


def _member_fault(place, rule, wording):
    return violation(f"/members/{place}/userId", rule, f"userId {wording}.")


async def _listed(request, statement):
    page = pagination.read_page(request, FILTERS, SORTS)
    account = request[app_keys.ACCOUNT]
    async with request.app[app_keys.DATABASE].reading_account(account) as conn:
        window = {"per_page": page.per_page, "offset": page.offset}
        row = await statement(conn, account_id=account, **page.filters, **window)
    return _with_meta(row["data"], page.window(row["total"]))


def _with_meta(data, meta):
    return responses.json_text_response(f'{{"data":{data},"meta":{json_codec.dumps(meta)}}}')
