"""What can be submitted: invoices, adjustment notes and consolidated invoices, each with its own statements and words."""

from dataclasses import dataclass

from service import json_codec
from service.db.statements import Statement, sql
from service.documents import consolidation, states
from service.errors import BadRequest


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """`noun` as messages say it; `column` names it in submitted_documents; `lock` gives what `attempt.freeze` needs."""

    noun: str
    column: str
    exists: Statement
    lock: Statement

    @property
    def title(self):
        """The noun at the head of a sentence."""
        return self.noun.capitalize()

    def ids(self, id):
        """The three subject variables of a statement, of which one has a value."""
        return {**dict.fromkeys(COLUMNS), self.column: id}

    async def locked(self, conn, company, id):
        """The locked row, None when there is none. What a note adjusts is locked before it."""
        if self is NOTE:
            await sql.adjustment_note_lock_invoice(conn, company_id=company, id=id)
            await sql.adjustment_note_lock_consolidated(conn, company_id=company, id=id)
        return await self.lock(conn, company_id=company, id=id)

    async def referred_to(self, conn, company, id):
        """Whether a note that the portal has, or may have, adjusts this document."""
        if self is NOTE:
            return False
        ids = self.ids(id)
        return await sql.adjustment_note_live(
            conn,
            company_id=company,
            invoice_id=ids["invoice_id"],
            consolidated_invoice_id=ids["consolidated_invoice_id"],
        )


COLUMNS = ("invoice_id", "adjustment_note_id", "consolidated_invoice_id")

INVOICE = DocumentKind("invoice", "invoice_id", sql.invoice_exists, sql.invoice_lock)
NOTE = DocumentKind(
    "adjustment note", "adjustment_note_id", sql.adjustment_note_exists, sql.adjustment_note_lock
)
CONSOLIDATED = DocumentKind(
    "consolidated invoice",
    "consolidated_invoice_id",
    sql.consolidated_invoice_exists,
    sql.consolidated_invoice_lock,
)


async def check_ready(conn, config, company, subject, row):
    """Raises BadRequest when what a document depends on does not stand so that it can be sent."""
    if subject is INVOICE and row["consolidated_invoice_id"]:
        raise _refused("Consolidated", "", "The invoice is part of a consolidated invoice.")
    if subject is CONSOLIDATED:
        _refuse_stale(row, config)
    if subject is not NOTE:
        return
    ids = {
        "invoice_id": row["invoice_id"],
        "consolidated_invoice_id": row["consolidated_invoice_id"],
    }
    target = await sql.submitted_document_latest(
        conn, company_id=company, adjustment_note_id=None, **ids
    )
    if states.refusal(states.NOTE_REFUSALS, target):
        raise BadRequest(states.NOTE_WITHOUT_VALID_INVOICE)
    if row["type"] != "DEBIT_NOTE" and row["payable_amount"] > row["adjustable"]:
        wording = f"The note would take the invoice, adjusted to {row['adjustable']}, under zero."
        raise _refused("Amount", "/lineItems", wording)
    if row["consolidated_invoice_id"]:
        for each in consolidation.misclassified(
            json_codec.loads(row["body"].encode())["lineItems"]
        ):
            raise _refused("ERR236", each["path"], each["message"])


def _refuse_stale(row, config):
    """A consolidated invoice that was cancelled has given its invoices away; one that is late stays a draft."""
    if row["status"] == "Cancelled":
        raise _refused(
            "Cancelled", "", "Its invoices were freed by the cancellation; consolidate them anew."
        )
    period = consolidation.period(row["month"], config.time_zone, config.consolidation_days)
    for code, message in consolidation.period_refusals(period, row["issue_date"], row["now"]):
        raise _refused(f"Consolidation{code.capitalize()}", "", message)


def _refused(code, path, message):
    errors = [{"code": code, "path": path, "message": message}]
    return BadRequest(states.SUBMIT_FAILED, errors=errors, retryable=False)
