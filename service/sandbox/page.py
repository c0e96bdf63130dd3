"""The public page of a validated document, at its validation link. Portal: 7.3"""

from collections.abc import Callable
from html import escape

from aiohttp import web

from .clock import instant
from .controls import SANDBOX
from .database import Row, sql

SHOWN = {"Valid", "Cancelled"}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
  body {{ font: 16px sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em }}
  th {{ text-align: left; padding-right: 2em }}
</style>
</head><body><h1>{title}</h1><table>{rows}</table></body></html>
"""
#: Label -> value from the row of the document.
ROWS: dict[str, Callable[[Row], str | None]] = {
    "Number": lambda row: row["number"],
    "Status": lambda row: row["status"],
    "Issuer": lambda row: f"{row['issuer_name']} ({row['taxpayer']})",
    "Receiver": lambda row: f"{row['receiver_name']} ({row['receiver_tin']})",
    "Issued": lambda row: instant(row["issued_at"]),
    "Validated": lambda row: instant(row["validated_at"]),
    "Total payable": lambda row: f"MYR {row['total_payable']}",
    "Unique identifier": lambda row: row["uuid"],
}


async def show_document(request: web.Request) -> web.Response:
    """Return the page of a Valid or Cancelled document, 404 for any other link."""
    row = sql.document_get(request.app[SANDBOX].db, uuid=request.match_info["uuid"])
    if row is None or row["status"] not in SHOWN or row["long_id"] != request.match_info["long_id"]:
        return html_response("Document not found", "", 404)
    cells = "".join(
        f"<tr><th>{label}</th><td>{escape(str(show(row)))}</td></tr>"
        for label, show in ROWS.items()
    )
    return html_response(f"e-Invoice {escape(row['number'])}", cells)


def html_response(title: str, rows: str, status: int = 200) -> web.Response:
    """Return a page with a title and table rows, both already escaped."""
    return web.Response(
        text=PAGE.format(title=title, rows=rows), status=status, content_type="text/html"
    )
