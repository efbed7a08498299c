"""Alembic's entry: run the revisions on the database whose URL the store hands over."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine

from sandyard.store.tables import metadata

engine = create_engine(context.config.attributes["url"])
with engine.begin() as connection:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    context.run_migrations()
engine.dispose()
