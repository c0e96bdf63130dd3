"""Steps 3, 5 and 6: comparisons with other documents and with the register of taxpayers.

An unregistered TIN is accepted unless `strict_register` is set, so that documents of any taxpayer
can be tried. Portal: 10.11, 12.9, 14.6, 14.7, 14.8
"""

from collections.abc import Iterator

from ..controls import Sandbox
from ..database import Row
from ..document import (
    GENERAL_PUBLIC,
    NOTES,
    SELF_BILLED,
    TIN_ONLY,
    UblDocument,
    UblParty,
    well_formed_tin,
)
from ..login import may_act_for
from . import Finding, finding_at

PATH = "BillingReference.InvoiceDocumentReference.UUID"
FOREIGN_BUYER = "EI00000000020"
GENERAL_TINS = {GENERAL_PUBLIC, FOREIGN_BUYER, "EI00000000030", "EI00000000040"}


def check_duplicate(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    controls = sandbox.controls
    if not controls.duplicate_detection:
        return
    since = row["due_at"] - controls.duplicate_window_seconds
    original = sandbox.db.document_duplicate(**dict(row), since=since)
    if original:
        yield Finding(
            "DV302",
            f"Duplicate of the document {original}: "
            "same type, version, issue date and time, number and issuer.",
            "document",
        )


def check_references(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    if document.type not in NOTES:
        return
    if not document.references:
        yield at_reference(None, "A reference to the original document is required.")
    for uuid, number in document.references:
        if uuid == "NA":
            if not number:
                yield at_reference(None, "The number of the original document is required.")
        elif original := sandbox.db.document_get(uuid=uuid):
            yield from check_reference(row, original, number)
        else:
            yield at_reference(None, f"The referenced document {uuid} is not known.")


def check_reference(note: Row, original: Row, number: str) -> Iterator[Finding]:
    """Yield the finding about the first reason why the note cannot refer to the original."""
    is_self_billed = note["type"] in SELF_BILLED
    is_other_billing = (original["type"] in SELF_BILLED) != is_self_billed
    has_other_buyer = not is_self_billed and original["buyer_tin"] != note["buyer_tin"]
    reasons = (
        (original["taxpayer"] != note["taxpayer"], None, "was issued by another taxpayer"),
        (is_other_billing, None, "is of another kind of billing"),
        (original["type"] in NOTES, None, "is not an invoice"),
        (original["number"] != number, None, "has another number"),
        (original["status"] != "Valid", "DR303", "has a status that allows no note"),
        (has_other_buyer, "DR308", "has another buyer"),
    )
    for applies, code, wording in reasons:
        if applies:
            yield at_reference(code, f"The referenced document {original['uuid']} {wording}.")
            return


def at_reference(code: str | None, message: str) -> Finding:
    return finding_at(PATH, code, message, "_")


def check_taxpayers(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    yield from check_intermediary(row, sandbox)
    for party in (document.supplier, document.buyer):
        if party.tin in GENERAL_TINS:
            yield from check_general_tin(document, party)
        else:
            yield from check_registered(party, sandbox)


def check_intermediary(row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    """Yield a finding if the intermediary that sent the document is no longer permitted to."""
    client = sandbox.state.clients.get(row["client_id"])
    if not row["intermediary_tin"] or client is None:
        return
    known = sandbox.state.taxpayers.get(client.tin)
    is_blocked = client.blocked or (known and known.blocked)
    if is_blocked or not may_act_for(client, row["taxpayer"]):
        problem = "active" if is_blocked else "authorised"
        message = f"The intermediary {client.tin} is not {problem}."
        yield Finding(None, message, "intermediary")


def check_general_tin(document: UblDocument, party: UblParty) -> Iterator[Finding]:
    """Yield findings about a general TIN, which is allowed only in some documents."""
    scheme, identity = party.identity
    if party.tin == GENERAL_PUBLIC and not document.consolidated:
        if identity == "NA":
            message = (
                f"TIN {GENERAL_PUBLIC} without an identity number "
                "is only for classification 004 on all lines."
            )
            yield at_tin(party, "ERR236", message)
        elif scheme not in ("NRIC", "ARMY"):
            message = f"TIN {GENERAL_PUBLIC} with {scheme} is not for an individual e-invoice."
            yield at_tin(party, None, message)
    if document.consolidated and party is document.receiver and party.tin != GENERAL_PUBLIC:
        message = f"Only TIN {GENERAL_PUBLIC} is for the public of a consolidated document."
        yield at_tin(party, "ERR245", message)
    if party.tin == FOREIGN_BUYER and party.role == "SUPPLIER" and document.type in SELF_BILLED:
        message = f"TIN {FOREIGN_BUYER} is not for a foreign supplier."
        yield at_tin(party, "ERR208", message)


def check_registered(party: UblParty, sandbox: Sandbox) -> Iterator[Finding]:
    """Yield a finding if the party's TIN or identity is not registered, or is blocked."""
    known = sandbox.state.taxpayers.get(party.tin)
    if not well_formed_tin(party.tin) or (sandbox.controls.strict_register and not known):
        code = "ERR406" if party.role == "BUYER" else None
        yield at_tin(party, code, f"TIN {party.tin} is not valid.")
    elif known and known.blocked:
        yield at_tin(party, None, f"The taxpayer {party.tin} is not active.")
    elif not has_own_identity(party, sandbox):
        message = f"{' '.join(party.identity)} does not belong to the TIN {party.tin}."
        yield at_tin(party, "ERR206", message)


def has_own_identity(party: UblParty, sandbox: Sandbox) -> bool:
    """Return whether the identity belongs to the TIN.

    If the register has no identities of the TIN, any identity but NA does.
    """
    if party.identity[1] == "NA":
        return False
    known = sandbox.state.identities(party.tin)
    return not known or party.identity[1] == TIN_ONLY or party.identity in known


def at_tin(party: UblParty, code: str | None, message: str) -> Finding:
    found = finding_at(party.root, code, f"{message} - {party.role}")
    return Finding(code, found.message, "TIN", found.path)
