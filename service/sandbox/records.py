"""Documents as they are stored, and as responses show them. Portal: 5.1, 5.5"""

import hashlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from service.documents.codes import BUILT_IN

from .answers import encode
from .clock import instant
from .controls import Sandbox
from .database import Row, sql
from .document import NOTES, Document
from .identifiers import new_uuid

#: Column of an amount -> (the total of the invoice, name in a document, name in a row of a list).
TOTALS = {
    "total_excluding_tax": ("TaxExclusiveAmount", "totalExcludingTax", "totalSales"),
    "total_discount": ("AllowanceTotalAmount", "totalDiscount", "totalDiscount"),
    "total_net": ("TaxExclusiveAmount", "totalNetAmount", "netAmount"),
    "total_payable": ("PayableAmount", "totalPayableAmount", "total"),
}


@dataclass(frozen=True, slots=True)
class Receipt:
    """An accepted document with its bytes and warnings; times are in Unix seconds."""

    submission_uid: str
    document: Document
    raw: bytes
    warnings: list[dict[str, str]]
    received_at: float
    due_at: float  # end of validation


def insert_document(sandbox: Sandbox, caller: Row, receipt: Receipt) -> str:
    """Store an accepted document inside the caller's transaction and return its uuid."""
    document, uuid = receipt.document, new_uuid()
    sql.document_insert(
        sandbox.db,
        uuid=uuid,
        submission_uid=receipt.submission_uid,
        number=document.number,
        type=document.type,
        version=document.version,
        issued_at=document.issued_at,
        sha256=hashlib.sha256(receipt.raw).hexdigest(),
        received_at=receipt.received_at,
        due_at=receipt.due_at,
        **submitter_columns(sandbox, caller),
        **party_columns(document),
        **total_columns(document),
    )
    sql.body_insert(sandbox.db, uuid=uuid, document=receipt.raw)
    if receipt.warnings:
        sql.warning_insert(sandbox.db, uuid=uuid, found=encode(receipt.warnings))
    for original, _ in document.references if document.type in NOTES else ():
        sql.reference_insert(sandbox.db, original_uuid=original, note_uuid=uuid)
    return uuid


def submitter_columns(sandbox: Sandbox, caller: Row) -> dict[str, str | None]:
    """Return the columns about the client that sent the document."""
    columns = {
        "taxpayer": caller["taxpayer"],
        "client_id": caller["client_id"],
        "created_by": f"{caller['client_tin']}:{caller['client_id']}",
        "intermediary_tin": None,
        "intermediary_name": None,
    }
    if caller["represented"]:
        intermediary = sql.taxpayer_get(sandbox.db, tin=caller["client_tin"])
        columns["intermediary_tin"] = caller["client_tin"]
        columns["intermediary_name"] = intermediary and intermediary["name"]
    return columns


def party_columns(document: Document) -> dict[str, str]:
    """Return the columns about the parties."""
    issuer, receiver = document.issuer, document.receiver
    return {
        "issuer_name": issuer.name,
        "issuer_id": issuer.identity[1],
        "issuer_scheme": issuer.identity[0],
        "receiver_tin": receiver.tin,
        "receiver_name": receiver.name,
        "receiver_id": receiver.identity[1],
        "receiver_scheme": receiver.identity[0],
        "supplier_tin": document.supplier.tin,
        "supplier_name": document.supplier.name,
        "buyer_tin": document.buyer.tin,
        "buyer_name": document.buyer.name,
    }


def total_columns(document: Document) -> dict[str, str]:
    """Return the amounts in MYR as decimal text."""
    return {column: str(document.amount(name)) for column, (name, *_) in TOTALS.items()}


def submitted_by(row: Row, caller: Row) -> bool:
    """Return whether the caller submitted the document or submission.

    An intermediary sees only what it sent itself. Portal: 2.1
    """
    own = not caller["represented"] or row["client_id"] == caller["client_id"]
    return own and row["taxpayer"] == caller["taxpayer"]


def head(row: Row) -> dict[str, Any]:
    """Return the members with which every response about a document begins."""
    totals = {names[1]: Decimal(row[column]) for column, names in TOTALS.items()}
    return {**describe(row), "submissionUid": row["submission_uid"], **totals}


def listed(row: Row, tin_suffix: str) -> dict[str, Any]:
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


def describe(row: Row) -> dict[str, Any]:
    """Return the members that documents and rows of lists have in common."""
    return {
        "uuid": row["uuid"],
        "longId": row["long_id"],
        "internalId": row["number"],
        "typeName": BUILT_IN["document_types"].codes[row["type"]],
        "typeVersionName": row["version"],
        "issuerTin": row["taxpayer"],
        "issuerName": row["issuer_name"],
        "receiverId": row["receiver_id"],
        "receiverName": row["receiver_name"],
        "dateTimeIssued": instant(row["issued_at"]),
        "dateTimeReceived": instant(row["received_at"]),
        "dateTimeValidated": instant(row["validated_at"]),
        "status": row["status"],
        "cancelDateTime": instant(row["cancelled_at"]),
        "rejectRequestDateTime": instant(row["reject_requested_at"]),
        "documentStatusReason": row["reason"],
        "createdByUserId": row["created_by"],
    }
