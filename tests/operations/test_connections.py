"""Connections to PostgreSQL: the types that asyncpg has to ask for."""

import asyncpg
from asyncpg.connection import LoggedQuery

from service.db.connections import connect


async def test_a_process_asks_for_the_definition_of_an_array_type_once(database: str) -> None:
    asked: list[str] = []

    def record(query: LoggedQuery) -> None:
        asked.append(query.query)

    for _ in range(2):
        asked.clear()
        connection = await connect(database, {})
        connection.add_query_logger(record)
        assert await connection.fetchval("select $1::smallint[]", [1, 2]) == [1, 2]
        await connection.close()
    assert asked == ["select $1::smallint[]"]


async def test_a_type_of_a_database_is_known_to_each_connection(
    database: str, owner: asyncpg.Connection
) -> None:
    await owner.execute("create type colour as enum ('red', 'green')")
    for _ in range(2):
        connection = await connect(database, {})
        assert await connection.fetchval("select 'red'::colour") == "red"
        assert await connection.fetchval("select array['green'::colour]") == ["green"]
        await connection.close()
