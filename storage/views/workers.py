"""Who works on a study: its running trials, and the leases that their processes hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from storage.schema import TrialRow
from storage.sql.database import Database
from storage.views.view import short
from tuner.leases import Lease, LeaseStore
from tuner.rejections import Stage
from tuner.stores import ContentKey, Study, TrialState

MOST = 64
"""Running trials that are listed at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A running trial and who runs it.

    Attributes:
        number, layout, stage, host, started_at: of the trial.
        owner: who holds its lease; empty if nobody does.
        expires_at: when the lease runs out unless it is renewed.
        claims: how often it was claimed: one more for every owner who vanished.
    """

    number: int
    layout: str
    stage: Stage
    host: str
    started_at: datetime | None
    owner: str = ""
    expires_at: datetime | None = None
    claims: int = 0

    @property
    def alive(self) -> bool:
        """True if somebody holds the lease."""
        return bool(self.owner)


def workers(leases: LeaseStore, database: Database, study: Study) -> Sequence[Worker]:
    """Returns the running trials of a study with their leases, in two statements."""
    wanted = (
        select(
            TrialRow.number,
            short(TrialRow.layout),
            TrialRow.stage,
            short(TrialRow.host),
            TrialRow.started_at,
            TrialRow.candidate_digest,
        )
        .where(TrialRow.study_id == study.id, TrialRow.state == TrialState.RUNNING)
        .order_by(TrialRow.number.desc())
        .limit(MOST)
    )
    with database.read() as session:
        rows = session.execute(wanted).all()
    held = {lease.resource.rpartition("/")[2]: lease for lease in leases.leases("compile/")}
    out = []
    for number, layout, stage, host, started_at, candidate_digest in rows:
        lease = held.get(_content(study, candidate_digest))
        out.append(_worker(lease, number=number, layout=layout, stage=stage, host=host, started_at=started_at))
    return out


def _worker(
    lease: Lease | None, *, number: int, layout: str, stage: Stage, host: str, started_at: datetime | None
) -> Worker:
    worker = Worker(number=number, layout=layout, stage=stage, host=host, started_at=started_at)
    if lease is None:
        return worker
    return Worker(
        number=number,
        layout=layout,
        stage=stage,
        host=lease.host or host,
        started_at=started_at,
        owner=lease.owner,
        expires_at=lease.expires_at,
        claims=lease.claims,
    )


def _content(study: Study, candidate_digest: str) -> str:
    return ContentKey(
        workload_digest=study.key.workload.digest,
        slice_name=study.key.slice.name,
        wrap=study.key.slice.wrap,
        toolchain_digest=study.key.toolchain.digest,
        candidate_digest=candidate_digest,
    ).digest
