"""Documents that are locked for a change, and with everything that their submission reads."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from service.config import Config
from service.db.connections import Connection, Record
from service.db.statements import sql
from service.documents import consolidation, states
from service.documents.kind import CONSOLIDATED, INVOICE, NOTE, DocumentKind
from service.documents.optional_members import read_stored_body
from service.documents.ubl import document
from service.errors import BadRequest, make_reason
from service.http.requests import or_not_found
from service.json_types import JsonObject, Row
from service.offload import offload
from service.submission.machine.failures import refuse_note, refuse_submission


async def lock_document(conn: Connection, kind: DocumentKind, document_id: int) -> Record:
    """Lock a document, and before it the one that it adjusts.

    Return what the rules need of it. Raises NotFound if there is no such document of the kind.
    """
    await sql.documents_lock(conn, ids=[document_id])
    row = await sql.document_load(conn, id=document_id, kind=kind.name)
    return or_not_found(row, kind.title)


@dataclass(frozen=True, slots=True)
class LockedRecord:
    """A record that this transaction has locked, as lock_document returns it."""

    company_id: int
    kind: DocumentKind
    row: Row


@dataclass(frozen=True, slots=True)
class SendableDocument(LockedRecord):
    """A locked record with everything that its checks and its submission read, loaded once.

    `source` is the record in the shape of a request body. `issuer` is the company's row with the
    database's `now`.
    """

    source: JsonObject
    issuer: JsonObject
    config: Config

    @property
    def number(self) -> str:
        return self.row["number"]

    @property
    def size(self) -> int:
        """Return the number of characters of the stored body."""
        return len(self.row["body"])

    @property
    def document_type(self) -> str:
        """Return the portal's type code."""
        return document.get_document_type(self.source)

    @property
    def version(self) -> str:
        return self.config.portal_document_version

    @property
    def next_issue_time(self) -> datetime:
        """Return the client's issue time to the second, shifted by one second for each attempt.

        The portal treats documents with the same number, type and issue time as one, and so does
        this service when it looks for a document: attempts must differ. Portal: 14.8
        """
        issued_at = self.row["issue_date"].replace(microsecond=0)
        shift = timedelta(seconds=self.row["attempts"])
        return issued_at + shift if issued_at + shift <= self.issuer["now"] else issued_at - shift

    def as_of(self, now: datetime) -> "SendableDocument":
        """Return the document as it would be judged at another time."""
        return replace(self, row={**self.row, "now": now}, issuer={**self.issuer, "now": now})

    def build(self, issued_at: datetime) -> JsonObject:
        """Return the UBL document, without a signature. Raises AmountError."""
        return document.build(
            self.source, self.issuer, number=self.number, issued_at=issued_at, version=self.version
        )


async def load_document(conn: Connection, config: Config, record: LockedRecord) -> SendableDocument:
    """Load the source and the issuer of a locked record."""
    company_id, row = record.company_id, record.row
    source = await offload(len(row["body"]), read_stored_body, row["body"])
    issuer = dict(await sql.issuer_get(conn))
    return SendableDocument(company_id, record.kind, row, source, issuer, config)


async def check_ready(conn: Connection, config: Config, record: LockedRecord) -> None:
    """Raise BadRequest if a document that this one depends on prevents its submission."""
    kind, row = record.kind, record.row
    if kind is INVOICE and row["consolidated_invoice_id"]:
        raise _not_ready("Consolidated", "", "The invoice is part of a consolidated invoice.")
    if kind is CONSOLIDATED:
        _check_consolidated(row, config)
    if kind is NOTE:
        await _check_note(conn, record)


async def _check_note(conn: Connection, record: LockedRecord) -> None:
    row = record.row
    target = await sql.submitted_document_latest(conn, document_id=row["target_id"])
    if states.find_refusal(states.NOTE_REFUSALS, target):
        raise refuse_note()
    if row["type"] != "DEBIT_NOTE" and row["total_amount"] > row["adjustable"]:
        message = states.NOTE_TOO_HIGH.format(amount=row["adjustable"])
        raise _not_ready("Amount", "/lineItems", message)


def _check_consolidated(row: Row, config: Config) -> None:
    """Reject a consolidated invoice that was cancelled or is outside its submission period.

    A cancellation releases the invoices of a consolidated invoice.
    """
    if row["status"] == "Cancelled":
        message = "Its cancellation has released its invoices. Create a new consolidated invoice."
        raise _not_ready("Cancelled", "", message)
    period = consolidation.make_period(row["month"], config.time_zone, config.consolidation_days)
    for code, message in consolidation.find_period_refusals(period, row["issue_date"], row["now"]):
        raise _not_ready(f"Consolidation{code.capitalize()}", "", message)


def _not_ready(code: str, path: str, message: str) -> BadRequest:
    errors = [make_reason(code, message, path)]
    return refuse_submission("check_failed", errors)
