"""The page of a person's own account: sessions, and the log of sign-ins, links and passwords."""

from functools import partial

from aiohttp import web

from service.dashboard import pages
from service.dashboard.pages import redirect, render
from service.dashboard.sessions import IDLE, LONGEST, PERSON, SESSION
from service.db.statements import sql
from service.errors import NotFound
from service.http.access import run_shared
from service.http.forms import FORM, read_number

page = partial(pages.page, right=PERSON)

PLACE = "/account"
TEXTS = pages.TEXTS["account"]
MOST_ENTRIES = 50  # of the log on a page


@page("GET", PLACE)
async def show_account(request: web.Request) -> web.Response:
    """Return the sessions of the person, and the log, the latest first."""
    session, before = request[SESSION], read_number(request.query.get("before", ""), 17)
    own = partial(run_shared, request, user_id=session.user_id)
    sessions = await own(sql.session_list, token_sha256=session.digest, idle=IDLE, longest=LONGEST)
    rows = await own(sql.user_audit_page, before=before, most=MOST_ENTRIES)
    older = rows[-1]["id"] if len(rows) == MOST_ENTRIES else None
    return await render(request, "account.html", sessions=sessions, rows=rows, older=older)


@page("POST", f"{PLACE}/sessions/{{id:[0-9]{{1,18}}}}/end")
async def end_session(request: web.Request) -> web.Response:
    """End a session of the person. Raises NotFound if it is that of another person."""
    session_id, user_id = int(request.match_info["id"]), request[SESSION].user_id
    ended = await run_shared(request, sql.session_end, user_id=user_id, id=session_id)
    if ended is None:
        raise NotFound(TEXTS["no_session"])
    return redirect(f"{PLACE}?notice=session_ended")


@page("POST", f"{PLACE}/sessions/end-others")
async def end_other_sessions(request: web.Request) -> web.Response:
    session = request[SESSION]
    await run_shared(request, sql.sessions_end, user_id=session.user_id, kept=session.digest)
    return redirect(f"{PLACE}?notice=sessions_ended")


@page("POST", f"{PLACE}/links-seen")
async def see_links(request: web.Request) -> web.Response:
    """Show the notice about links that others made no more, up to the one in the form."""
    until = read_number(request[FORM].get("until", ""), 18)
    await run_shared(request, sql.links_see, user_id=request[SESSION].user_id, until=until)
    return redirect(PLACE)
