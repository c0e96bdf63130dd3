"""Activities that must not be consolidated, on both sides of each condition. Portal: 13"""

from datetime import date, timedelta
from typing import Any

import pytest

from service.documents import codes, exclusions
from service.documents.exclusions import Business, find_excluded_line

TODAY = date(2026, 11, 24)
FURNITURE = Business("31001", False)


def line(*classifications: str) -> dict[str, Any]:
    return {"classifications": list(classifications)}


def selling(msic: str) -> Business:
    return Business(msic, False)


def buying(msic: str) -> Business:
    return Business(msic, True)


#: (line, company, part of the reason or None).
CASES = [
    (line("025"), FURNITURE, "a motor vehicle"),
    (line("025"), buying("31001"), "a motor vehicle"),
    (line("028"), FURNITURE, None),
    (line("022"), selling("45101"), "a motor vehicle"),
    (line("004"), selling("45401"), "a motor vehicle"),
    (line(), selling("45109"), "a motor vehicle"),
    ({"classifications": None}, selling("45109"), "a motor vehicle"),
    (line("030"), selling("45101"), None),
    (line("022"), selling("45201"), None),
    (line("022"), selling("45300"), None),
    (line("022"), buying("45101"), None),
    (line("022"), selling("51101"), "a flight ticket"),
    (line("022"), selling("51201"), None),
    (line("022"), selling("41001"), "a construction contract"),
    (line("022"), selling("43901"), "a construction contract"),
    (line("005"), selling("42101"), None),
    (line("033"), buying("31001"), "betting"),
    (line("022"), buying("92000"), "betting"),
    (line("036"), buying("92000"), None),
    (line("022"), selling("92000"), None),
    (line("037"), buying("31001"), "an agent"),
    (line("045"), buying("31001"), "an agent"),
    (line("036"), buying("31001"), None),
    (line("022"), selling("35102"), "electricity"),
    (line("029"), selling("35102"), None),
    (line("017"), selling("61202"), "telecommunication"),
    (line("003"), selling("61101"), "telecommunication"),
    (line("003"), FURNITURE, None),
    (line("017"), FURNITURE, None),
    (line("026"), selling("61101"), None),
    (line("022"), selling(""), None),
]


@pytest.mark.parametrize("item, business, reason", CASES)
def test_an_excluded_activity_is_found(
    item: dict[str, Any], business: Business, reason: str | None
) -> None:
    exclusion = find_excluded_line([item], business, TODAY)
    if reason is None:
        assert exclusion is None
    else:
        assert exclusion and reason in exclusion.reason


def test_every_activity_begins_on_its_day() -> None:
    for activity in exclusions.ACTIVITIES:
        item = line(*sorted(activity.classifications)[:1])
        business = Business((activity.msic or ("",))[0], activity.self_billed)
        assert find_excluded_line([item], business, activity.since), activity.name
        before = find_excluded_line([item], business, activity.since - timedelta(days=1))
        assert before is None, activity.name


def test_the_first_excluded_line_is_named() -> None:
    exclusion = find_excluded_line([line("022"), line("025")], FURNITURE, TODAY)
    assert exclusion and exclusion.reason.startswith("Line 2 has the classification 025")


def test_codes_of_the_exclusions_are_in_the_code_tables() -> None:
    industries = codes.BUILT_IN["msic"].codes
    for activity in exclusions.ACTIVITIES:
        named = activity.classifications | activity.msic_classifications | exclusions.GENERAL
        assert named <= codes.BUILT_IN["classifications"].codes.keys()
        for start in activity.msic:
            assert any(code.startswith(start) for code in industries), start
