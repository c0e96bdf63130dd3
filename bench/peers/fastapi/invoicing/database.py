"""The engine of SQLAlchemy, and a session for each request."""

import os
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import Depends
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

POOL_SIZE = 16  # as the default of the service


def _dump_json(value: Any) -> str:
    return orjson.dumps(value).decode()


_url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+asyncpg")
engine = create_async_engine(
    _url.difference_update_query(["sslmode"]),
    pool_size=POOL_SIZE,
    max_overflow=0,
    json_serializer=_dump_json,
    json_deserializer=orjson.loads,
    connect_args={"server_settings": {"timezone": "UTC", "jit": "off"}},
)
new_session = async_sessionmaker(engine, expire_on_commit=False)


async def get_session() -> AsyncIterator[AsyncSession]:
    """Yield a session for one request."""
    async with new_session() as session:
        yield session


SessionDep = Annotated[AsyncSession, Depends(get_session)]
