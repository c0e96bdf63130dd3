"""Who did what for a company, from the command line."""

from service.commands.bootstrap import with_database
from service.commands.companies import CommandError
from service.db.statements import sql


async def audit(config, company, most):
    """The last entries of the company's audit log, oldest first, each as JSON text. Raises CommandError."""
    async with with_database(config) as (_, database), database.reading(company) as conn:
        if not await sql.company_exists(conn, company_id=company):
            raise CommandError(f"There is no company {company}.")
        return [row["entry"] for row in await sql.audit_page(conn, company_id=company, most=most)]
