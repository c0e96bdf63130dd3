"""Companies with an API key."""

from dataclasses import dataclass

from service.commands.companies import add_company as create_company
from service.commands.companies import add_key
from service.commands.serve import DEMO_COMPANY
from service.config import Config
from service.db.transactions import Database

#: The facts of a second company.
NEIGHBOUR = {"tin_code": "C20880050020", "name": "Teh Tarik Utara Sdn. Bhd."}
#: Makes all companies submit their invoices by themselves.
AUTOMATIC = """update companies set setting = setting || '{"AUTO_SUBMIT_INVOICE": true}'"""


@dataclass(frozen=True, slots=True)
class Company:
    """A company and its API key."""

    id: int
    key: str
    key_id: str


def make_tin(number: int) -> str:
    """Return a valid TIN. A TIN belongs to one company."""
    return f"C2088005{number:03}0"


async def add_company(config: Config, database: Database, **facts: str | None) -> Company:
    """Create a company and a key. It differs from the demo company in the given facts."""
    company_id = (await create_company(config, database, **{**DEMO_COMPANY, **facts}))["id"]
    key = await add_key(config, database, company_id, "test")
    return Company(company_id, key["key"], key["key_id"])
