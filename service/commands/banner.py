"""The texts that `serve` prints: its addresses, how to sign in, and requests to try."""

from collections.abc import Sequence

from service.config import Config, local_address

ADDRESSES = """
The API:      {api}/api
The portal:   {portal}
{psql}"""
SIGN_IN = """
The dashboard, as the owner of the demo company (the link works once, for a day):

  {link}
"""
FIRST = """
The demo company was created: {name}, company {company}. Its key is shown only once:

  export KEY={key} API={api} SANDBOX={portal}
"""
AGAIN = """
The demo company is company {company}. Its key was shown at the first start. Create another one:

  export API={api} SANDBOX={portal}
  export KEY=$(.venv/bin/python run.py add-key --company {company} |
               sed 's/.*"key": "\\([^"]*\\)".*/\\1/')
"""
OTHERS = """
The database has other companies ({companies}), so no demo company was created. Create a key:

  .venv/bin/python run.py add-key --company {first}
"""
#: Can be pasted as often as wanted: each time it creates another invoice.
TRY = """
Create an invoice and submit it, then show its status (Valid after three seconds, with a link):

  ID=$(curl -s "$API/api/invoices" -H "X-API-Key: $KEY" -H 'Content-Type: application/json' -d '{
    "type": "INVOICE", "code": '$(date +%s%N | cut -c1-12)', "submitImmediately": true,
    "issueDateTime": "'$(date -u +%Y-%m-%dT%H:%M:%SZ)'",
    "buyer": {"type": "LOCAL_INDIVIDUAL", "name": "Aminah binti Salleh",
              "registration": {"type": "NRIC", "number": "900101105566"},
              "contactNumber": "+60123456789",
              "address": {"line1": "5 Jalan Dahlia", "city": "Shah Alam", "state": "10",
                          "zipCode": "40150", "country": "MYS"}},
    "lineItems": [{"id": "1", "description": "Coffee beans, 1 kg", "classifications": ["022"],
                   "unit": {"code": "KGM", "price": 48.50, "count": 2},
                   "taxDetails": [{"taxType": "02", "taxRate": {"percentage": 8}}],
                   "originCountry": "MYS"}]}' | grep -o '"id":[0-9]*' | cut -d: -f2)
  sleep 4; curl -s "$API/api/invoices/$ID" -H "X-API-Key: $KEY"; echo
  curl -s "$API/api/invoices/$ID/submitted-documents" -H "X-API-Key: $KEY"; echo
"""


def describe_addresses(config: Config, support: str | None) -> str:
    """Return the text with the addresses. `support` is the address of the login for psql."""
    psql = f'psql:         psql "{support}"\n' if support else ""
    return ADDRESSES.format(
        api=local_address(config.host, config.port), portal=config.portal_api_base, psql=psql
    )


def describe_others(companies: Sequence[int]) -> str:
    shown = ", ".join(map(str, companies[:10])) + (", …" if len(companies) > 10 else "")
    return OTHERS.format(companies=shown, first=companies[0])


def describe_demo(config: Config, link: str, company_id: int, name: str, key: str | None) -> str:
    """Return the text about the demo company, with the key if the company is new."""
    text = AGAIN if key is None else FIRST
    demo = text.format(
        name=name,
        company=company_id,
        key=key,
        api=local_address(config.host, config.port),
        portal=config.portal_api_base,
    )
    return SIGN_IN.format(link=link) + demo + TRY
