"""The audit log of a company."""

import argparse

from service.commands.bootstrap import run, with_database
from service.commands.command_line import CommandLine, add_company_option
from service.commands.companies import CommandError
from service.config import Config, read_config
from service.db.statements import sql


def register(line: CommandLine) -> None:
    """Add the command."""
    parser = line.add(
        "audit",
        _print_audit,
        "Print the audit log of a company, one JSON object per line: documents, e-invoice "
        "requests, keys, settings, roles, certificates, webhooks, with old and new values.",
    )
    add_company_option(parser)
    parser.add_argument(
        "--last", type=int, default=100, metavar="N", help="number of entries, 100 by default"
    )


def _print_audit(options: argparse.Namespace) -> None:
    for entry in run(audit(read_config(), options.company, options.last)):
        print(entry)


async def audit(config: Config, company_id: int, most: int) -> list[str]:
    """Return the last entries of a company's audit log as JSON, oldest first.

    Raises CommandError.
    """
    async with with_database(config) as (_, database), database.reading(company_id) as conn:
        if not await sql.company_exists(conn, company_id=company_id):
            raise CommandError(f"There is no company {company_id}.")
        rows = await sql.audit_page(conn, company_id=company_id, most=most)
        return [row["entry"] for row in rows]
