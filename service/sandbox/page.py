"""The public page of a validated document, at its validation link. Portal: 7.3"""

from html import escape

from aiohttp import web

from .clock import instant
from .controls import SANDBOX

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
  body {{ font: 16px sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em }}
  th {{ text-align: left; padding-right: 2em }}
</style>
</head><body><h1>{title}</h1><table>{rows}</table></body></html>
"""
ROWS = """
<tr><th>Number</th><td>{number}</td></tr>
<tr><th>Status</th><td>{status}</td></tr>
<tr><th>Issuer</th><td>{issuer_name} ({taxpayer})</td></tr>
<tr><th>Receiver</th><td>{receiver_name} ({receiver_tin})</td></tr>
<tr><th>Issued</th><td>{issued}</td></tr>
<tr><th>Validated</th><td>{validated}</td></tr>
<tr><th>Total payable</th><td>MYR {total_payable}</td></tr>
<tr><th>Unique identifier</th><td>{uuid}</td></tr>
"""


async def show_document(request: web.Request) -> web.Response:
    """Return the page of a Valid or Cancelled document, 404 for any other link."""
    row = request.app[SANDBOX].db.document_get(uuid=request.match_info["uuid"])
    status, title, rows = 404, "Document not found", ""
    # Only a document that was valid has a long id.
    if row and row["long_id"] == request.match_info["long_id"]:
        members = {name: escape(str(value)) for name, value in dict(row).items()}
        times = {"issued": instant(row["issued_at"]), "validated": instant(row["validated_at"])}
        status, title = 200, f"e-Invoice {members['number']}"
        rows = ROWS.format(**members, **times)
    page = PAGE.format(title=title, rows=rows)
    return web.Response(text=page, status=status, content_type="text/html")
