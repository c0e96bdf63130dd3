"""Documents as they are stored, and as responses show them. Portal: 5.1, 5.5, 7.3"""

import hashlib
import secrets
import string
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from service.documents.codes import BUILT_IN

from .answers import Body, encode
from .controls import Sandbox, instant
from .database import Row
from .document import NOTES, UblDocument, UblParty
from .validators import Finding

#: Column of an amount -> (the total of the invoice, name in a document, name in a row of a list).
TOTALS = {
    "total_excluding_tax": ("TaxExclusiveAmount", "totalExcludingTax", "totalSales"),
    "total_discount": ("AllowanceTotalAmount", "totalDiscount", "totalDiscount"),
    "total_net": ("TaxExclusiveAmount", "totalNetAmount", "netAmount"),
    "total_payable": ("PayableAmount", "totalPayableAmount", "total"),
}
#: Member that documents and rows of lists have in common -> column.
MEMBERS = {
    "uuid": "uuid",
    "longId": "long_id",
    "internalId": "number",
    "typeVersionName": "version",
    "issuerTin": "taxpayer",
    "issuerName": "issuer_name",
    "receiverId": "receiver_id",
    "receiverName": "receiver_name",
    "status": "status",
    "documentStatusReason": "reason",
    "createdByUserId": "created_by",
}
TIMES = {
    "dateTimeIssued": "issued_at",
    "dateTimeReceived": "received_at",
    "dateTimeValidated": "validated_at",
    "cancelDateTime": "cancelled_at",
    "rejectRequestDateTime": "reject_requested_at",
}


UPPER = string.digits + string.ascii_uppercase
MIXED = string.digits + string.ascii_letters


def new_uuid() -> str:
    """Return an id of a document or submission: 26 characters of 0-9 and A-Z."""
    return "".join(secrets.choice(UPPER) for _ in range(26))


def new_long_id(received_at: float) -> str:
    """Return a long id of 42 characters that ends in the Unix time of receipt."""
    return f"{new_uuid()}{''.join(secrets.choice(MIXED) for _ in range(6))}{int(received_at):010d}"


class CheckedEntry(NamedTuple):
    """One document of a submission after the immediate checks. Findings reject it, warnings not.

    A document of another structure is None.
    """

    code_number: str
    findings: list[Finding]
    document: UblDocument | None = None
    warnings: Sequence[Finding] = ()


def insert_document(
    sandbox: Sandbox, caller: Row, entry: CheckedEntry, now: float, **submission: str | None
) -> str:
    """Store an accepted document with the columns of its submission, and return its uuid.

    `now` is in Unix seconds. The caller has opened a transaction.
    """
    document, uuid = entry.document, new_uuid()
    assert document
    warnings = [{"target": each.target, "message": each.message} for each in entry.warnings]
    delay = 60 if document.number.startswith("SIM-SLOW-") else 0  # Portal: Appendix B
    sandbox.db.document_insert(
        uuid=uuid,
        **submission,
        number=document.number,
        type=document.type,
        version=document.version,
        issued_at=document.issued_at,
        sha256=hashlib.sha256(document.raw).hexdigest(),
        received_at=now,
        due_at=now + sandbox.controls.processing_seconds + delay,
        **submitter_columns(sandbox, caller),
        **party_columns(document),
        **{column: str(document.amount(name)) for column, (name, *_) in TOTALS.items()},
        warnings=encode(warnings).decode(),
    )
    sandbox.db.body_insert(uuid=uuid, document=document.raw)
    for original, _ in document.references if document.type in NOTES else ():
        sandbox.db.reference_insert(original_uuid=original, note_uuid=uuid)
    return uuid


def submitter_columns(sandbox: Sandbox, caller: Row) -> dict[str, str | None]:
    """Return the columns about the client that sent the document."""
    client = sandbox.state.clients[caller["client_id"]]
    tin = client.tin if caller["represented"] else None
    intermediary = tin and sandbox.state.taxpayers.get(tin)
    return {
        "taxpayer": caller["taxpayer"],
        "client_id": client.client_id,
        "created_by": f"{client.tin}:{client.client_id}",
        "intermediary_tin": tin,
        "intermediary_name": intermediary.name if intermediary else None,
    }


def party_columns(document: UblDocument) -> dict[str, str]:
    """Return the columns about the parties. The statement takes those that it names."""
    columns: dict[str, str] = {}
    for who in ("issuer", "receiver", "supplier", "buyer"):
        party: UblParty = getattr(document, who)
        scheme, identity = party.identity
        columns |= {
            f"{who}_tin": party.tin,
            f"{who}_name": party.name,
            f"{who}_scheme": scheme,
            f"{who}_id": identity,
        }
    return columns


def submitted_by(row: Row, caller: Row) -> bool:
    """Return whether the caller submitted the document or submission.

    An intermediary sees only what it sent itself. Portal: 2.1
    """
    own = not caller["represented"] or row["client_id"] == caller["client_id"]
    return own and row["taxpayer"] == caller["taxpayer"]


def head(row: Row) -> Body:
    """Return the members with which every response about a document begins."""
    totals = {names[1]: Decimal(row[column]) for column, names in TOTALS.items()}
    return {**describe(row), "submissionUid": row["submission_uid"], **totals}


def listed(row: Row, tin_suffix: str) -> Body:
    """Return a row of a list. `tin_suffix` ends the names of the TINs: `TIN` or `Tin`."""
    return {
        **describe(row),
        "submissionUID": row["submission_uid"],
        **{names[2]: Decimal(row[column]) for column, names in TOTALS.items()},
        f"supplier{tin_suffix}": row["supplier_tin"],
        "supplierName": row["supplier_name"],
        "submissionChannel": "ERP",
        "intermediaryName": row["intermediary_name"],
        "intermediaryTin": row["intermediary_tin"],
        "intermediaryRob": None,
        "buyerName": row["buyer_name"],
        f"buyer{tin_suffix}": row["buyer_tin"],
    }


def describe(row: Row) -> Body:
    """Return the members that documents and rows of lists have in common."""
    return {
        **{name: row[column] for name, column in MEMBERS.items()},
        **{
            name: None if row[column] is None else instant(row[column])
            for name, column in TIMES.items()
        },
        "typeName": BUILT_IN["document_types"].codes[row["type"]],
    }
