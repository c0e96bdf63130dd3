"""The table of all pages."""

from aiohttp import web

from service.dashboard import (
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

#: The modules with pages.
MODULES = (
    sharing,
    sign_in,
    account,
    overview,
    editing,
    consolidation,
    documents,
    buyer_requests,
    settings_company,
    settings_access,
    settings_connections,
    spreadsheet,
)


def make_page_routes() -> list[web.RouteDef]:
    declared = [page for module in MODULES for page in module.PAGES]
    assets = web.RouteDef("GET", "/assets/{version}/{name}", pages.get_asset, {})
    return [*pages.make_routes(declared), assets]
