"""Requests a minute of an integration key, counted in PostgreSQL, so that all processes share them. Spec: Limits."""

import time

from service.db.statements import sql


class IntegrationQuota:
    """Minutes that begin with a key's first request. Where `per_minute` is 0, nothing is counted or shown."""

    def __init__(self, database, per_minute):
        self._database = database
        self._per_minute = per_minute

    async def take(self, account_id, key_id):
        """(headers, wait) of one more request; `wait` is the seconds until the next minute when this one is used up."""
        if not self._per_minute:
            return {}, None
        async with self._database.account(account_id) as conn:
            row = await sql.integration_quota_take(
                conn, account_id=account_id, key_id=key_id, quota=self._per_minute
            )
        return self._headers(row["remaining"], row["reset"]), row["wait"]

    def headers_of_nobody(self):
        """For a request without a good key: it has nothing left, and waiting changes nothing."""
        return self._headers(0, int(time.time())) if self._per_minute else {}

    def _headers(self, remaining, reset):
        return {
            "X-RateLimit-Limit": str(self._per_minute),
            "X-RateLimit-Remaining": str(remaining),
            "X-RateLimit-Reset": str(reset),
        }
