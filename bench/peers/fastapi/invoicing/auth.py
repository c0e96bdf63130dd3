"""API keys: looked up by their SHA-256, with a small cache."""

import hashlib
import time
from typing import Annotated

from fastapi import Depends, HTTPException
from fastapi.security import APIKeyHeader
from sqlalchemy import select

from .database import new_session
from .models import ApiKey

CACHE_SECONDS = 60
CACHE_SIZE = 10_000

_header = APIKeyHeader(name="X-API-Key", auto_error=False)
_cache: dict[bytes, tuple[int, float]] = {}


async def get_company(key: Annotated[str | None, Depends(_header)]) -> int:
    """Return the company of the key. Raises a 401."""
    digest = hashlib.sha256((key or "").encode()).digest()
    company, until = _cache.get(digest, (0, 0.0))
    if until > time.monotonic():
        return company
    async with new_session() as session:
        found = await session.scalar(select(ApiKey.company_id).where(ApiKey.key_sha256 == digest))
    if found is None:
        raise HTTPException(401, "The API key is not valid.")
    if len(_cache) >= CACHE_SIZE:
        _cache.clear()
    _cache[digest] = (found, time.monotonic() + CACHE_SECONDS)
    return found


CompanyDep = Annotated[int, Depends(get_company)]
