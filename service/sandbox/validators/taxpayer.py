"""Step 5: who the parties are, against the register. Portal: 12.9, 14.6

A TIN that is not registered passes, unless the control `strict_register` is set: documents of strangers can be tried.
"""

import json

from ..database import sql
from ..document import GENERAL_PUBLIC, SELF_BILLED, TIN_ONLY, well_formed_tin
from . import Finding, wildcard

FOREIGN_BUYER = "EI00000000020"
MALAY = "Pembayar cukai tidak sah."
GENERAL_TINS = {GENERAL_PUBLIC, FOREIGN_BUYER, "EI00000000030", "EI00000000040"}


def check(document, row, sandbox):
    yield from intermediary(row, sandbox)
    for party in (document.supplier, document.buyer):
        if party.tin in GENERAL_TINS:
            yield from general(document, party)
        else:
            yield from registered(party, sandbox)


def intermediary(row, sandbox):
    """Whoever sent the document for the issuer may still do so."""
    client = row["intermediary_tin"] and sql.client_get(sandbox.db, client_id=row["client_id"])
    if not client:
        return
    known = sql.taxpayer_get(sandbox.db, tin=client["tin"])
    represents = client["represents"] and json.loads(client["represents"])
    if client["blocked"] or (known and known["blocked"]):
        yield Finding(
            None, f"The intermediary {client['tin']} is not active.", "intermediary", malay=MALAY
        )
    elif not client["intermediary"] or (
        represents is not None and row["taxpayer"] not in represents
    ):
        yield Finding(
            None,
            f"The intermediary {client['tin']} is not authorised.",
            "intermediary",
            malay=MALAY,
        )


def general(document, party):
    scheme, identity = party.identity
    person = scheme in ("NRIC", "ARMY") and identity != "NA"
    if party.tin == GENERAL_PUBLIC and not person and not document.consolidated:
        if identity == "NA":
            message = f"TIN {GENERAL_PUBLIC} without an identity number is only for classification 004 on all lines."
            yield of(party, "ERR236", message)
        else:
            yield of(
                party,
                None,
                f"TIN {GENERAL_PUBLIC} with {scheme} is not for an individual e-invoice.",
            )
    if document.consolidated and party is document.receiver and party.tin != GENERAL_PUBLIC:
        yield of(
            party,
            "ERR245",
            f"Only TIN {GENERAL_PUBLIC} is for the public of a consolidated document.",
        )
    if party.tin == FOREIGN_BUYER and party.role == "SUPPLIER" and document.type in SELF_BILLED:
        yield of(party, "ERR208", f"TIN {FOREIGN_BUYER} is not for a foreign supplier.")


def registered(party, sandbox):
    known = sql.taxpayer_get(sandbox.db, tin=party.tin)
    if not well_formed_tin(party.tin) or (sandbox.controls.strict_register and not known):
        yield of(
            party, "ERR406" if party.role == "BUYER" else None, f"TIN {party.tin} is not valid."
        )
    elif known and known["blocked"]:
        yield of(party, None, f"The taxpayer {party.tin} is not active.")
    elif not belongs(party, sandbox):
        yield of(
            party, "ERR206", f"{' '.join(party.identity)} does not belong to the TIN {party.tin}."
        )


def belongs(party, sandbox):
    """Whether the identity is one of the TIN; a TIN without identities in the register takes any but NA."""
    if party.identity[1] == "NA":
        return False
    known = [(each["type"], each["value"]) for each in sql.identity_list(sandbox.db, tin=party.tin)]
    return not known or party.identity[1] == TIN_ONLY or party.identity in known


def of(party, code, message):
    return Finding(code, f"{message} - {party.role}", "TIN", wildcard(party.root), MALAY)
