"""What a night shall tune: models, shapes and slices multiplied out, with budgets and priorities.

This reads the document of a ``nightly.toml``; which models there are is for the caller to check, who knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from tuner.errors import InvalidValue
from tuner.network.cost import Degraded
from tuner.nightly import tables
from tuner.nightly.tables import Table
from tuner.plans.plan import Constraints
from tuner.ports import WorkloadSpec
from tuner.search.settings import SamplerName
from tuner.slices.names import parse_slice

MEASURE = ("auto", "never", "require")
"""Whether an entry is timed: where there are devices; never; or it fails without them."""

ENTRY_BUDGET_S = 600.0
MARGIN = 0.01
ALARM = 0.02
LOCK_TTL_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One workload on one slice.

    Attributes:
        spec: the workload.
        slice_name: canonical.
        constraints: memory to keep free, and links that are slow or missing.
        priority: higher goes first.
        budget_s: wall time that a night may spend on it.
        device_budget_s: time on devices that a night may spend on it; None for no limit of its own.
        max_trials: candidates that may be compiled; None for no limit.
        measure: one of `MEASURE`.
        sampler: who proposes.
        source: where it stands in the file, for example ``matrix[0]``.
    """

    spec: WorkloadSpec
    slice_name: str
    constraints: Constraints = Constraints()
    priority: int = 0
    budget_s: float = ENTRY_BUDGET_S
    device_budget_s: float | None = None
    max_trials: int | None = None
    measure: str = "auto"
    sampler: SamplerName = SamplerName.BEST_FIRST
    source: str = ""

    @property
    def name(self) -> str:
        """For people: ``wan2.1-t2v-14b@832x480x81 on v5e-2x4``, with what differs from the default use."""
        asked = self.spec.parameters
        shape = f"@{asked['shape']}" if "shape" in asked else ""
        parts = [f"videos={asked['videos']}"] if "videos" in asked else []
        parts += ["no-guidance"] if asked.get("guidance") is False else []
        reserve, links = self.constraints.reserve_hbm_bytes, self.constraints.links
        parts += [f"reserve={reserve / 2**30:g}GiB"] if reserve else []
        parts += [f"links={','.join(links)}"] if links else []
        return f"{self.spec.model}{shape} on {self.slice_name}" + (f" ({'; '.join(parts)})" if parts else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A night's work.

    Attributes:
        entries: in the order of the file.
        budget_s: wall time of the whole night; None for no limit.
        device_budget_s: time on devices of the whole night; None for no limit.
        margin: gain, as a share of the step, from which a new plan replaces the active one.
        alarm: loss under a new compiler, as a share of the step, from which someone must look.
        refresh_s: how old a finished search may grow before it is done again; None for any age.
        lock_ttl_s: how long the lock outlives a night that is killed.
    """

    entries: tuple[Entry, ...]
    budget_s: float | None = None
    device_budget_s: float | None = None
    margin: float = MARGIN
    alarm: float = ALARM
    refresh_s: float | None = None
    lock_ttl_s: float = LOCK_TTL_S


def read_matrix(document: Mapping[str, Any]) -> Matrix:
    """Reads a document. Raises InvalidValue naming the key, its value, and what would be legal.

    A night's keys stand at the top, the keys of entries in any number of ``[[matrix]]`` tables, each the product of its
    ``models``, ``shapes`` and ``slices``, and in ``[defaults]`` for all of them.
    """
    top = Table(document, "")
    budget_s = top.take("budget", tables.seconds, None)
    device_budget_s = top.take("device_budget", tables.seconds, None)
    margin = top.take("margin", tables.share, MARGIN)
    alarm = top.take("alarm", tables.share, ALARM)
    refresh_s = top.take("refresh", tables.seconds, None)
    lock_ttl_s = top.take("lock_ttl", tables.seconds, LOCK_TTL_S)
    defaults = top.take("defaults", _table, {})
    listed = top.take("matrix", _tables, ())
    top.finish()
    _entries(defaults, "defaults", partial=True)
    if not listed:
        raise InvalidValue("there is nothing to tune: legal is at least one [[matrix]] with models and slices")
    entries = [
        entry
        for index, values in enumerate(listed)
        for entry in _entries({**defaults, **values}, f"matrix[{index}]", partial=False)
    ]
    _refuse_twins(entries)
    return Matrix(
        entries=tuple(entries),
        budget_s=budget_s,
        device_budget_s=device_budget_s,
        margin=margin,
        alarm=alarm,
        refresh_s=refresh_s,
        lock_ttl_s=lock_ttl_s,
    )


def _entries(values: Mapping[str, Any], where: str, *, partial: bool) -> list[Entry]:
    table = Table(values, where)
    models = table.take("models", tables.texts, ())
    shapes = table.take("shapes", tables.texts, ())
    slices = table.take("slices", tables.texts, ())
    names = [tables.at(f"{where}.slices[{i}]", name, _slice) for i, name in enumerate(slices)]
    links = table.take("links", tables.texts, ())
    degraded = [tables.at(f"{where}.links[{i}]", link, Degraded.parse) for i, link in enumerate(links)]
    parameters: dict[str, Any] = {}
    videos = table.take("videos", tables.whole(1), 1)
    if videos != 1:
        parameters["videos"] = videos
    if not table.take("guidance", tables.flag, True):
        parameters["guidance"] = False
    constraints = Constraints(
        reserve_hbm_bytes=table.take("reserve_hbm", tables.count_bytes, 0), links=tuple(map(str, degraded))
    )
    settings: dict[str, Any] = {
        "constraints": constraints,
        "priority": table.take("priority", tables.whole(-1_000_000, 1_000_000), 0),
        "budget_s": table.take("budget", tables.seconds, ENTRY_BUDGET_S),
        "device_budget_s": table.take("device_budget", tables.seconds, None),
        "max_trials": table.take("trials", tables.whole(1), None),
        "measure": table.take("measure", tables.one_of(MEASURE), "auto"),
        "sampler": SamplerName(table.take("sampler", tables.one_of(SamplerName), "best-first")),
    }
    table.finish()
    if partial:
        return []
    for key, found in (("models", models), ("slices", slices)):
        if not found:
            raise InvalidValue(f"{where}.{key} is missing: legal is a list of texts, with at least one")
    return [
        Entry(
            spec=WorkloadSpec(model=model, parameters={**({"shape": shape} if shape else {}), **parameters}),
            slice_name=name,
            source=where,
            **settings,
        )
        for model, shape, name in product(models, shapes or ("",), names)
    ]


def _refuse_twins(entries: list[Entry]) -> None:
    seen: dict[str, Entry] = {}
    for entry in entries:
        twin = seen.setdefault(entry.name, entry)
        if twin is not entry:
            raise InvalidValue(f"{entry.name} is in {twin.source} and again in {entry.source}: legal is once")


def _slice(name: str) -> str:
    return parse_slice(name).name


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidValue("legal is a table")
    return value


def _tables(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise InvalidValue("legal is a list of tables, each written as [[matrix]]")
    return tuple(value)
