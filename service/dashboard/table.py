"""The table of all pages, which their modules declare when they are imported."""

from aiohttp import web

from service.dashboard import (  # noqa: F401
    account,
    buyer_requests,
    consolidation,
    documents,
    editing,
    overview,
    pages,
    settings_access,
    settings_company,
    settings_connections,
    sharing,
    sign_in,
    spreadsheet,
)


def make_page_routes() -> list[web.RouteDef]:
    assets = web.RouteDef("GET", "/assets/{version}/{name}", pages.get_asset, {})
    return [*pages.make_routes(), assets]
