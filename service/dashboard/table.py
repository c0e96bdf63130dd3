"""The table of all pages."""

from aiohttp import web

from service.dashboard import (
    buyer_requests,
    documents,
    invoice_form,
    overview,
    pages,
    settings,
    sign_in,
    spreadsheet,
)

#: The modules with pages.
MODULES = (sign_in, overview, invoice_form, documents, buyer_requests, settings, spreadsheet)


def make_page_routes() -> list[web.RouteDef]:
    """Return the routes of all pages, and of the files that they load."""
    declared = [page for module in MODULES for page in module.PAGES]
    assets = web.RouteDef("GET", "/assets/{version}/{name}", pages.get_asset, {})
    return [*pages.make_routes(declared), assets]
