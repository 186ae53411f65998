"""What a night did, as values: for a person, a dashboard, metrics, and the night after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tuner.errors import InvalidValue
from tuner.nightly.nights import NightState
from tuner.nightly.staleness import Due
from tuner.plans.plan import Evidence

SCHEMA_VERSION = 1


class Ending(StrEnum):
    """How an entry ended. Values are stored: only add, never remove."""

    PROMOTED = "promoted"  # a new plan is in service
    KEPT = "kept"  # the plan in service stays
    IMPOSSIBLE = "impossible"  # no layout runs
    FAILED = "failed"  # an error
    INTERRUPTED = "interrupted"  # the night was stopped
    FRESH = "fresh"  # it was not due
    NO_TIME = "no-time"  # the night's budget was spent before


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """A plan of another toolchain, compiled and ranked again under this one. Seconds are predictions of one step.

    Attributes:
        plan_id: the plan.
        toolchain: that made it; `changes` says what is different now.
        before_s: its step. `restated` if its old program was ranked by today's model, so that compilers alone differ;
            else the figure is the stored one.
        kept_s: the new program in the plan's own placement; None if it does not run there.
        after_s: the new program in its best placement; None if it does not run at all, and `reason` says why.
    """

    plan_id: int
    toolchain: str
    changes: tuple[str, ...]
    before_s: float
    restated: bool
    kept_s: float | None
    after_s: float | None
    reason: str = ""

    @property
    def loss(self) -> float | None:
        """How much slower the decision became, as a share of its step; below 0 if faster, None if it does not run."""
        return None if self.after_s is None else self.after_s / self.before_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryReport:
    """What a night did with one entry.

    Attributes:
        name: of the entry.
        study: digest of the study's key; empty if it was not found out.
        priority: of the entry.
        due: why it was searched, or that it was fresh; `why` is the sentence.
        ending: how it ended; `detail` is the sentence.
        evidence: of the plan in service after the night.
        plan_before, before_s: the plan in service under this toolchain before, and its step; None if that is of
            another evidence than the plan's after.
        plan_after, after_s: the same after.
        recheck: of the plan of another toolchain.
        compiled: candidates that were compiled tonight and had not been before.
        proved: whether the plan is shown to be the best in the model.
        finished: whether the search came to its end.
        wall_s, device_s: what it took tonight.
        ended_at: aware; None if it was not begun.
    """

    name: str
    due: Due
    why: str
    ending: Ending
    study: str = ""
    priority: int = 0
    detail: str = ""
    evidence: str = ""
    plan_before: int | None = None
    before_s: float | None = None
    plan_after: int | None = None
    after_s: float | None = None
    recheck: Recheck | None = None
    compiled: int = 0
    proved: bool = False
    finished: bool = False
    wall_s: float = 0.0
    device_s: float = 0.0
    ended_at: datetime | None = None

    @property
    def reference_s(self) -> float | None:
        """What the entry's step is compared with: before under this toolchain, else under the former one."""
        if self.before_s is not None or self.recheck is None or self.evidence != Evidence.PREDICTED:
            return self.before_s
        return self.recheck.before_s

    @property
    def gain(self) -> float | None:
        """How much faster the plan in service became, as a share of the step before; None where there is no pair."""
        if self.after_s is None or self.reference_s is None:
            return None
        return 1 - self.after_s / self.reference_s

    def alarms(self, alarm: float) -> Iterator[str]:
        """Yields why someone must look at this entry, a sentence each."""
        if self.ending is Ending.FAILED:
            yield f"{self.name} failed: {self.detail}"
        if self.ending is Ending.IMPOSSIBLE:
            yield f"{self.name}: no layout runs: {self.detail}"
        check = self.recheck
        if check is None:
            return
        if check.after_s is None:
            yield f"{self.name}: plan {check.plan_id} does not run under the new compiler: {check.reason}"
        elif self.gain is not None and -self.gain > alarm:
            yield (
                f"{self.name}: {-self.gain:.1%} slower under the new compiler, "
                f"{check.before_s * 1e3:.1f} ms were {(self.after_s or 0.0) * 1e3:.1f} ms at the best"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class NightReport:
    """A night.

    Attributes:
        state: how it ended, or that it runs.
        started_at, finished_at: aware.
        host: that ran it.
        toolchain: that compiled.
        wall_limit_s, wall_spent_s, device_limit_s, device_spent_s: the budgets; a limit of None is none.
        alarm: see `tuner.nightly.matrix.Matrix`.
        entries: in the order in which they were done, then those that were not.
        problems: what went wrong beside the entries.
    """

    state: NightState
    started_at: datetime
    finished_at: datetime | None = None
    host: str = ""
    toolchain: str = ""
    wall_limit_s: float | None = None
    wall_spent_s: float = 0.0
    device_limit_s: float | None = None
    device_spent_s: float = 0.0
    alarm: float = 0.02
    entries: tuple[EntryReport, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def alarms(self) -> tuple[str, ...]:
        """Why someone must look, a sentence each; empty if nobody must."""
        return (*self.problems, *(alarm for entry in self.entries for alarm in entry.alarms(self.alarm)))

    @property
    def improved(self) -> tuple[EntryReport, ...]:
        """Entries whose plan became faster, the largest gain first."""
        return tuple(sorted((e for e in self.entries if (e.gain or 0.0) > 0), key=lambda e: -(e.gain or 0.0)))

    @property
    def regressed(self) -> tuple[EntryReport, ...]:
        """Entries whose re-checked plan became slower or does not run, the largest loss first."""
        slower = [e for e in self.entries if e.recheck is not None and _loss(e.recheck) > 0]
        return tuple(sorted(slower, key=lambda e: -_loss(e.recheck)))

    def ended(self, *endings: Ending) -> tuple[EntryReport, ...]:
        """Returns the entries that ended in one of these ways."""
        return tuple(entry for entry in self.entries if entry.ending in endings)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document; what follows from the rest (`alarms`, gains, losses) is in it for readers."""
        return {
            "schema_version": SCHEMA_VERSION,
            **asdict(self),
            "started_at": self.started_at.isoformat(),
            "finished_at": None if self.finished_at is None else self.finished_at.isoformat(),
            "alarms": list(self.alarms),
            "problems": list(self.problems),
            "entries": [_entry_to_json(entry) for entry in self.entries],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> NightReport:
        """Reads what `to_json` wrote. Raises InvalidValue on a document of a newer schema or with parts missing."""
        version = document.get("schema_version")
        if version != SCHEMA_VERSION:
            raise InvalidValue(f"night report has schema_version {version!r}; this version reads {SCHEMA_VERSION}")
        try:
            known = {name: document[name] for name in cls.__dataclass_fields__}
            return cls(
                **known
                | {
                    "state": NightState(document["state"]),
                    "started_at": datetime.fromisoformat(document["started_at"]),
                    "finished_at": _time(document["finished_at"]),
                    "entries": tuple(map(_entry_from_json, document["entries"])),
                    "problems": tuple(document["problems"]),
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidValue(f"night report is incomplete or malformed: {error!r}") from error


def _loss(check: Recheck | None) -> float:
    if check is None:
        return 0.0
    return float("inf") if check.loss is None else check.loss


def _entry_to_json(entry: EntryReport) -> dict[str, Any]:
    check = entry.recheck
    return {
        **asdict(entry),
        "ended_at": None if entry.ended_at is None else entry.ended_at.isoformat(),
        "gain": entry.gain,
        "recheck": None if check is None else {**asdict(check), "changes": list(check.changes), "loss": check.loss},
    }


def _entry_from_json(document: Mapping[str, Any]) -> EntryReport:
    check = document["recheck"]
    known = {name: document[name] for name in EntryReport.__dataclass_fields__}
    return EntryReport(
        **known
        | {
            "due": Due(document["due"]),
            "ending": Ending(document["ending"]),
            "ended_at": _time(document["ended_at"]),
            "recheck": None if check is None else _recheck_from_json(check),
        }
    )


def _recheck_from_json(document: Mapping[str, Any]) -> Recheck:
    known = {name: document[name] for name in Recheck.__dataclass_fields__}
    return Recheck(**known | {"changes": tuple(document["changes"])})


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
