"""The days on which the portal started to apply a rule, in its own time zone."""

from datetime import date, timedelta, timezone

PORTAL_ZONE = timezone(timedelta(hours=8))

RATE_MANDATORY = date(2025, 9, 1)  # Portal: 10.2
STATES_STRICT = date(2026, 4, 30)  # Portal: 12.2
REGISTER_STRICT = date(2026, 8, 1)  # Portal: 3.1
FORMATS_STRICT = date(2026, 8, 15)  # lengths, characters, units. Portal: 12.8, 14.3
DISCLOSURE = (date(2026, 7, 7), date(2027, 12, 31))  # versions 1.2 and 1.3. Portal: 9
