"""Who works on a study: its running trials, and the leases that their processes hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from storage.schema import TrialRow
from storage.sql.database import Database
from storage.views.view import short
from tuner.leases import LeaseStore
from tuner.rejections import Stage
from tuner.stores import ContentKey, Study, TrialState

MOST = 64
"""Running trials, and workers between two trials, that are listed at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker of a study and the trial that it runs, or either alone.

    Attributes:
        owner: who holds the leases; empty for a running trial that nobody holds: its worker may have died.
        host: where it runs.
        keeps: whether it keeps the study's books.
        number, layout, stage, started_at: of the trial; None and empty between two trials.
        claims: how often the trial was claimed: one more for every owner who vanished.
        expires_at: when the lease runs out unless it is renewed.
    """

    owner: str
    host: str
    keeps: bool = False
    number: int | None = None
    layout: str = ""
    stage: Stage | None = None
    started_at: datetime | None = None
    claims: int = 0
    expires_at: datetime | None = None

    @property
    def alive(self) -> bool:
        """True if somebody holds the lease."""
        return bool(self.owner)


def workers(leases: LeaseStore, database: Database, study: Study) -> Sequence[Worker]:
    """Returns who works on a study and on what, in four statements."""
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
    members = {lease.owner: lease for lease in leases.leases(f"worker/{study.id}/")}
    keepers = {lease.owner for lease in leases.leases(f"study/{study.id}") if lease.resource == f"study/{study.id}"}
    held = {lease.resource.rpartition("/")[2]: lease for lease in leases.leases("compile/")} if rows else {}
    out = []
    for number, layout, stage, host, started_at, candidate_digest in rows:
        lease = held.get(_content(study, candidate_digest))
        owner = "" if lease is None else lease.owner
        members.pop(owner, None)
        out.append(
            Worker(
                owner=owner,
                host=host if lease is None else lease.host or host,
                keeps=owner in keepers,
                number=number,
                layout=layout,
                stage=stage,
                started_at=started_at,
                claims=0 if lease is None else lease.claims,
                expires_at=None if lease is None else lease.expires_at,
            )
        )
    idle = [
        Worker(owner=owner, host=lease.host, keeps=owner in keepers, expires_at=lease.expires_at)
        for owner, lease in list(members.items())[:MOST]
    ]
    return [*out, *idle]


def _content(study: Study, candidate_digest: str) -> str:
    return ContentKey(
        workload_digest=study.key.workload.digest,
        slice_name=study.key.slice.name,
        wrap=study.key.slice.wrap,
        toolchain_digest=study.key.toolchain.digest,
        candidate_digest=candidate_digest,
    ).digest
