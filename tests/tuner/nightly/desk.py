"""A desk over the fakes of the search, with a clock that compiles push on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import optuna

from storage.memory import MemoryStore
from tests.tuner.search.fakes import FakeCompiler, FakeScreener, FakeWorkload
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate
from tuner.nightly.desk import Searched
from tuner.nightly.events import NightEvent
from tuner.nightly.matrix import Entry, Matrix
from tuner.nightly.night import Night
from tuner.nightly.report import NightReport
from tuner.plans.toolchain import Toolchain
from tuner.ports import Compiled, WorkloadSpec
from tuner.program.program import Compute
from tuner.rejections import Rejection
from tuner.search.events import Event, Listener
from tuner.search.funnel import Search
from tuner.search.outcome import Outcome
from tuner.search.revision import study_key
from tuner.search.settings import Settings
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice
from tuner.stores import StudyKey

OLD = Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1")
NEW = replace(OLD, libtpu="0.0.51")
NIGHT = datetime(2026, 11, 30, 22, tzinfo=UTC)


class Clock:
    """Seconds that pass only when something says so."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s

    def now(self) -> datetime:
        return NIGHT + timedelta(seconds=self.s)


@dataclass(slots=True, kw_only=True)
class TimedCompiler(FakeCompiler):
    """Compiles take `compile_s`; `slower` multiplies what the program takes."""

    clock: Clock
    compile_s: float = 10.0
    slower: float = 1.0

    def compile(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        *,
        known: Callable[[str], bool] | None = None,
    ) -> Compiled | Rejection | None:
        own = f"{workload.model} {self.lowered(candidate)}"  # models share no programs
        if known is not None and known(own):
            return None
        self.clock.s += self.compile_s
        # `super()` does not work in a slotted dataclass of Python 3.11.
        outcome = FakeCompiler.compile(self, workload, slice_, candidate)
        if not isinstance(outcome, Compiled):
            return outcome
        schedule = tuple(
            replace(node, cycles=round(node.cycles * self.slower))
            if isinstance(node, Compute) and node.cycles is not None
            else node
            for node in outcome.program.schedule
        )
        return replace(outcome, lowered_digest=own, program=replace(outcome.program, schedule=schedule))


@dataclass(slots=True, kw_only=True)
class Room:
    """Everything that nights share: store, clock, compiler; and what they did, in order."""

    clock: Clock = field(default_factory=Clock)
    toolchain: Toolchain = OLD
    code: str = "1"
    device_s: float = 0.0
    devices: bool = False
    done: list[str] = field(default_factory=list)
    allowed: dict[str, float | None] = field(default_factory=dict)
    before: Callable[[str], None] = lambda what: None
    store: MemoryStore = field(init=False)
    optuna: optuna.storages.BaseStorage = field(default_factory=optuna.storages.InMemoryStorage)
    compiler: TimedCompiler = field(init=False)
    events: list[NightEvent | Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock.now)
        self.compiler = TimedCompiler(clock=self.clock)

    def night(self, *entries: Entry, **changes: Any) -> NightReport:
        return self.prepared(Matrix(entries=entries, **changes)).run()

    def prepared(self, matrix: Matrix, **changes: Any) -> Night:
        arguments: dict[str, Any] = {
            "desk": self,
            "store": self.store,
            "toolchain": self.toolchain,
            "listener": self.events.append,
            "clock": self.clock,
            "now": self.clock.now,
        }
        return Night(matrix, **arguments | changes)

    def key(self, entry: Entry) -> StudyKey:
        self.before(f"key {entry.name}")
        workload, slice_ = self.workload(entry), parse_slice(entry.slice_name)
        return study_key(workload, slice_, self.toolchain, entry.constraints, calibration(slice_.generation_name))

    def measures(self, entry: Entry) -> bool:
        return self.devices

    def recheck(self, entry: Entry, candidate: Candidate, settings: Settings, listener: Listener) -> Outcome:
        self._begin(f"recheck {entry.name}")
        return self._open(entry, settings, listener).recheck(candidate)

    def search(self, entry: Entry, settings: Settings, device_s: float | None, listener: Listener) -> Searched:
        self.allowed[entry.name] = device_s
        self._begin(f"search {entry.name}")
        return Searched(outcome=self._open(entry, settings, listener).run(), device_s=self.device_s)

    def workload(self, entry: Entry) -> FakeWorkload:
        return FakeWorkload(name=f"{entry.spec.model}@{entry.spec.parameters['shape']}", code=self.code)

    def _begin(self, what: str) -> None:
        self.done.append(what)
        self.before(what)

    def _open(self, entry: Entry, settings: Settings, listener: Listener) -> Search:
        return Search(
            workload=self.workload(entry),
            spec=entry.spec,
            slice_=parse_slice(entry.slice_name),
            toolchain=self.toolchain,
            screener=FakeScreener(),
            compiler=self.compiler,
            store=self.store,
            optuna_storage=self.optuna,
            settings=settings,
            listener=listener,
            clock=self.clock,
        )


def entry(name: str = "a", slice_name: str = "v5e-2x2", **changes: Any) -> Entry:
    """An entry of the model of that name."""
    return Entry(spec=WorkloadSpec(model=name, parameters={"shape": "1x1x1"}), slice_name=slice_name, **changes)


def names(done: Iterable[str]) -> list[str]:
    """What was done, shortened to ``recheck a``."""
    return [" ".join((what.split()[0], what.split()[1].partition("@")[0])) for what in done]
