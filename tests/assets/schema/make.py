"""Writes ``<revision>.db`` of the newest revision with a few rows; run it from the repository's root after a migration.

Files of older revisions are never written again: they are what databases in use look like.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import storage
from storage import revision
from tests.storage.measurement_contract import measurement
from tests.storage.samples import NOON, TOO_BIG, compiled, content_key, plan, screened, study_key, trial
from tests.storage.work_contract import task
from tuner.stores import TrialState


def make(path: Path) -> None:
    with storage.open_store(f"sqlite:///{path}", create=True) as store:
        study = store.open_study(study_key())
        store.save_trials(study.id, [trial(0), trial(1, state=TrialState.REJECTED, rejection=TOO_BIG)])
        store.count_refusals(study.id, {"indivisible": 3})
        store.save_screened({content_key(): screened()})
        store.save_compiled(content_key(), "ab" * 32, compiled())
        store.publish(task(study.id))
        store.claim("compile/k", owner="worker-1/7/ab", ttl_s=60)
        store.count_abort(content_key(), "SIGABRT")
        store.promote(plan(2.0))
        kept = store.promote(plan(1.0, created_at=NOON))
        store.save_measurement(measurement(plan_id=kept.id))
    connection = sqlite3.connect(path, isolation_level=None)
    # One small file: no write-ahead log beside it, small pages and none of them free.
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA page_size = 512")
    connection.execute("VACUUM")
    connection.close()


if __name__ == "__main__":
    target = Path(__file__).with_name(f"{revision.HEAD}.db")
    if target.exists():
        raise SystemExit(f"{target} is there; a revision in use is never written again")
    make(target)
