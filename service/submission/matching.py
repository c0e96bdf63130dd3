"""Telling which of the documents that the portal shows are ours: by number, type, issue time and issuer."""

import re

from service.calls import Seen
from service.portal.client import Refused
from service.statements import sql

#: The authority's codes for a document of an identity that it has looked at before. Portal: 14.8
DUPLICATE_CODES = {"DV302", "DS302"}
MOST_NAMED = 3  # uuids that are asked about for one such refusal
_NAMED = re.compile(r"\b(?=[A-Za-z]*[0-9])[0-9A-Za-z]{10,64}\b", re.ASCII)


async def matches(desk, claim, call, listing):
    """What of a listing is a document of the call, as Seen, and no other submission's."""
    by_number = {}
    for there in listing:
        by_number.setdefault(there.number, []).append(there)
    pairs = [(doc, there) for doc in call.docs for there in by_number.get(doc.number, ()) if _same(call, doc, there)]
    async with desk.database.reading(claim.company_id) as conn:
        uuids = [there.uuid for _, there in pairs]
        rows = await sql.uuids_owned(conn, company_id=claim.company_id, uuids=uuids, submission_id=claim.id)
    owned = {row["uuid"] for row in rows}
    return [
        Seen(doc.id, there.uuid, there.submission_uid, "search", there.received_at)
        for doc, there in pairs
        if there.uuid not in owned
    ]


def _same(call, doc, there):
    """What a listing leaves out does not tell two documents apart; what it says has to agree."""
    return (
        there.number == doc.number
        and there.type_code in (None, doc.document_type)
        and there.issued_at in (None, doc.issued_at)
        and there.issuer_tin in (None, call.tin)
    )


async def first_send(desk, claim, call, doc, errors):
    """The document at the portal, and its Seen, of which a refused one is the second send; None when it is no such thing.

    The refusal names the uuid of the earlier document, which is ours when all that tells documents apart agrees and no
    other submission has it. Portal: 14.8
    """
    for uuid in _named(errors):
        if uuid != doc.uuid:
            try:
                there = await desk.portal.details(call.tin, uuid)
            except Refused:
                continue  # it is no uuid, or none of ours
            seen = [one for one in await matches(desk, claim, call, [there]) if one.document_id == doc.id]
            if seen:
                return there, seen[0]
    return None


def _named(errors):
    """The uuids that refusals as duplicates name."""
    texts = [error["message"] for error in errors if error["code"] in DUPLICATE_CODES]
    return list(dict.fromkeys(_NAMED.findall(" ".join(texts))))[:MOST_NAMED]
