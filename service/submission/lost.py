"""A submission that the portal accepted and does not know: its documents are looked for by number, never sent again."""

from dataclasses import dataclass
from datetime import datetime

from service import wire
from service.portal.client import PortalError, Refused
from service.submission import record
from service.submission.sweep import CLOCKS_APART

GIVE_UP = 24  # times `config.portal_unknown`; then a person has to look


@dataclass(frozen=True, slots=True)
class Unknown:
    """Since when the portal has not known a submission, and when its documents were last looked for, or None."""

    since: datetime
    searched_at: datetime | None

    def error(self, message):
        times = {"since": self.since.isoformat(), "searched_at": self.searched_at and self.searched_at.isoformat()}
        return {"code": "NotFound", "path": "", "message": message, **times}


def is_unknown(why):
    return isinstance(why, Refused) and why.status == 404


async def by_number(desk, claim, row, known, why, delay):
    """The Documents of an Accepted submission that is unknown to the portal, as it shows them by their numbers.

    Empty when there are none, or it is too soon to look: then the claim has been given back, to be looked at after
    `delay`, or to a person after a day. `row` and `known` are those of submission_get and submission_documents.
    """
    unknown, config = _unknown(row), desk.config
    if row["now"] - unknown.since > config.portal_unknown * GIVE_UP:
        await record.move(desk, claim, ["Accepted"], "NeedsPerson", error=unknown.error(str(why)))
        return []
    if row["now"] - (unknown.searched_at or unknown.since) >= config.portal_unknown:
        found = await _search(desk, row, known)
        if found:
            return found
        unknown = Unknown(unknown.since, row["now"])
    await record.move(desk, claim, ["Accepted"], "Accepted", delay=delay, error=unknown.error(str(why)))
    return []


def _unknown(row):
    """As the latest look left it; from now on where that was told something else."""
    error = wire.loads(row["last_error"].encode()) if row["last_error"] else {}
    if error.get("code") != "NotFound" or "since" not in error:
        return Unknown(row["now"], None)
    searched_at = error["searched_at"]
    return Unknown(datetime.fromisoformat(error["since"]), searched_at and datetime.fromisoformat(searched_at))


async def _search(desk, row, known):
    """What the portal's search shows of the known uuids. One that cannot be had now is looked for the next time."""
    found, since, until = [], row["first_sent_at"] - CLOCKS_APART, row["last_sent_at"] + CLOCKS_APART
    ours = {doc["uuid"] for doc in known}
    try:
        for doc in known:
            listing = await desk.portal.search(row["tin"], since, until, text=doc["number"], further=bool(found))
            found += [there for there in listing if there.uuid in ours]
    except PortalError as why:
        await desk.heed(why, "search")
    return found
