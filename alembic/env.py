"""Runs migrations: on the connection that `storage.migrations` hands over, or for the `alembic` command line."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

import storage
from storage.engines import make_engine, writing
from storage.migrations import OPTIONS
from storage.urls import parse


def run(connection: Connection) -> None:
    context.configure(connection=connection, **OPTIONS)
    with context.begin_transaction():
        context.run_migrations()


connection = context.config.attributes.get("connection")
if context.is_offline_mode():
    context.configure(dialect_name=parse(storage.default_url()).get_backend_name(), literal_binds=True, **OPTIONS)
    with context.begin_transaction():
        context.run_migrations()
elif connection is not None:
    run(connection)
else:
    engine = make_engine(parse(storage.default_url()), foreign_keys=False)
    try:
        with writing(engine).begin() as connection:
            run(connection)
    finally:
        engine.dispose()
