"""The quotas in docs/scaling.md are those that follow from the limits of the code."""

import math
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from service.portal.listings import PAGE_SIZE
from service.portal.rate_limits import QUOTAS, limits
from service.submission.machine.comparison_rules import CHANGING

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
YEAR, COMPANIES, SENDING = 10**9, 500_000, 50_000  # documents; companies; in the same hour
PEAK = 10 * YEAR / 365 / 24  # documents in the peak hour
POLLS = 2  # of a single submission: for the outcome, and until a comparison has listed it


def per_hour(operation: str, urgent: bool = False) -> int:
    """Return the requests that the service makes with one client id."""
    bounds = limits(QUOTAS[operation][-1], Decimal(1), urgent)
    return math.floor(bounds.most * (HOUR / bounds.span))


def searches(every: timedelta) -> float:
    """Return the searches in an hour that list the documents of a year, compared in turn."""
    listed = YEAR / 365 * ((CHANGING + every) / DAY)
    return listed / PAGE_SIZE / (every / HOUR)


def ids(needed: float, allowed: int) -> str:
    return f"{math.ceil(needed / allowed):,}"


def test_the_quotas_of_the_page_follow_from_the_code() -> None:
    submits, logins = per_hour("submit", urgent=True), per_hour("login", urgent=True)
    polls, found = per_hour("submission"), per_hour("search")
    rows = [
        (
            f"{QUOTAS['submit'][0].calls} submits a minute, up to 100 documents each",
            f"{submits:,} × documents per request in an hour",
            f"{ids(PEAK, submits)} with 1 document per request, {ids(PEAK / 10, submits)} with 10, "
            f"{ids(PEAK / 100, submits)} with 100",
        ),
        (
            f"{QUOTAS['login'][0].calls} logins a minute; a token of a taxpayer holds for an hour",
            f"{logins:,} taxpayers that send in the same hour",
            f"{ids(SENDING, logins)} for {SENDING:,} of them",
        ),
        (
            f"{QUOTAS['submission'][0].calls} polls a minute, {POLLS} for a submission",
            f"{polls // POLLS:,} submissions in an hour, {polls * 24 // POLLS:,} in a day",
            f"{ids(PEAK * POLLS, polls)} with 1 document per request, "
            f"{ids(PEAK * POLLS / 10, polls)} with 10",
        ),
        (
            f"{QUOTAS['search'][-1].calls} searches a minute, one for a company",
            f"{found:,} comparisons in an hour, {found * 24:,} in a day",
            f"{ids(COMPANIES, found * 24)} for {COMPANIES:,} companies with "
            f"`COMPARISON_SECONDS=86400`, {ids(COMPANIES, found)} with 3600",
        ),
        (
            f"the same, one for {PAGE_SIZE} documents of the last {CHANGING // HOUR} hours",
            f"{math.floor(found * PAGE_SIZE / ((CHANGING + HOUR) / DAY)):,} documents a day, "
            "compared hourly",
            f"{ids(searches(DAY), found)} with `COMPARISON_SECONDS=86400`, "
            f"{ids(searches(HOUR), found)} with 3600",
        ),
    ]
    page = PAGE.read_text()
    assert [row for row in rows if f"| {' | '.join(row)} |" not in page] == []
