"""Persistence: plans, trials and compiled programs in SQLite, PostgreSQL or memory.

Importing this package loads neither SQLAlchemy nor JAX nor Optuna; `open_store` loads what its database needs.
"""

from storage.opening import default_url, open_store, optuna_storage

__all__ = ["default_url", "open_store", "optuna_storage"]
