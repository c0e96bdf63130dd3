"""A document as it is stored and as the portal's answers show it. Portal: 5.1, 5.5"""

import hashlib
from decimal import Decimal

from service.documents.codes import TABLES

from .answers import encode
from .clock import instant
from .database import sql
from .document import NOTES
from .identifiers import new_uuid

#: what a stored amount is called: column -> (member of a document, member of a list row)
TOTALS = {
    "total_excluding_tax": ("totalExcludingTax", "totalSales"),
    "total_discount": ("totalDiscount", "totalDiscount"),
    "total_net": ("totalNetAmount", "netAmount"),
    "total_payable": ("totalPayableAmount", "total"),
}


def insert_document(sandbox, caller, submission_uid, entry, now, due_at):
    """Stores an accepted document inside the caller's transaction and returns its uuid."""
    document, uuid = entry.document, new_uuid()
    sql.document_insert(
        sandbox.db,
        uuid=uuid,
        submission_uid=submission_uid,
        number=document.number,
        type=document.type,
        version=document.version,
        issued_at=document.issued_at,
        sha256=hashlib.sha256(entry.raw).hexdigest(),
        received_at=now,
        due_at=due_at,
        **submitter(sandbox, caller),
        **party_columns(document),
        **total_columns(document),
    )
    sql.body_insert(sandbox.db, uuid=uuid, document=entry.raw)
    if entry.warnings:
        sql.warning_insert(sandbox.db, uuid=uuid, found=encode(entry.warnings))
    for original, _ in document.references if document.type in NOTES else ():
        sql.reference_insert(sandbox.db, original_uuid=original, note_uuid=uuid)
    return uuid


def submitter(sandbox, caller):
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


def party_columns(document):
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


def total_columns(document):
    """Amounts in MYR as decimal text."""
    excluding_tax = document.amount("TaxExclusiveAmount")
    return {
        "total_excluding_tax": str(excluding_tax),
        "total_discount": str(document.amount("AllowanceTotalAmount")),
        "total_net": str(excluding_tax),
        "total_payable": str(document.amount("PayableAmount")),
    }


def submitted_by(row, caller):
    """An intermediary sees what it sent itself. Portal: 2.1"""
    own = not caller["represented"] or row["client_id"] == caller["client_id"]
    return own and row["taxpayer"] == caller["taxpayer"]


def head(row):
    """The members that every answer about a document begins with."""
    return {
        "uuid": row["uuid"],
        "submissionUid": row["submission_uid"],
        **described(row),
        **{names[0]: Decimal(row[column]) for column, names in TOTALS.items()},
        **lifecycle(row),
    }


def listed(row, tin_suffix):
    """A row of the lists; `tin_suffix` is how the list writes the ends of supplierTin and buyerTin."""
    return {
        "uuid": row["uuid"],
        "submissionUID": row["submission_uid"],
        **described(row),
        **{names[1]: Decimal(row[column]) for column, names in TOTALS.items()},
        **lifecycle(row),
        f"supplier{tin_suffix}": row["supplier_tin"],
        "supplierName": row["supplier_name"],
        "submissionChannel": "ERP",
        "intermediaryName": row["intermediary_name"],
        "intermediaryTin": row["intermediary_tin"],
        "intermediaryRob": None,
        "buyerName": row["buyer_name"],
        f"buyer{tin_suffix}": row["buyer_tin"],
    }


def described(row):
    return {
        "longId": row["long_id"],
        "internalId": row["number"],
        "typeName": TABLES["document_types"][row["type"]],
        "typeVersionName": row["version"],
        "issuerTin": row["taxpayer"],
        "issuerName": row["issuer_name"],
        "receiverId": row["receiver_id"],
        "receiverName": row["receiver_name"],
        "dateTimeIssued": instant(row["issued_at"]),
        "dateTimeReceived": instant(row["received_at"]),
        "dateTimeValidated": instant(row["validated_at"]),
    }


def lifecycle(row):
    return {
        "status": row["status"],
        "cancelDateTime": instant(row["cancelled_at"]),
        "rejectRequestDateTime": instant(row["reject_requested_at"]),
        "documentStatusReason": row["reason"],
        "createdByUserId": row["created_by"],
    }
