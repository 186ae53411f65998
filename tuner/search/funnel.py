"""The funnel: enumerate, screen, compile, place, until nothing that is left can win or the budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import optuna

from tuner.calibration.records import constants
from tuner.layouts.layout import Candidate
from tuner.network.cost import Degraded
from tuner.plans.toolchain import Toolchain
from tuner.ports import Compiler, Screener, Workload, WorkloadSpec
from tuner.search.agenda import Agenda
from tuner.search.cache import CachedCompiler, CachedScreener, Subject
from tuner.search.compiling import CompileStage
from tuner.search.crew import TTL_S, Crew
from tuner.search.events import Listener, Stopped, silent
from tuner.search.ledger import Ledger
from tuner.search.measure import Measure, MeasuredOutcome, Predicted, wrong_candidates
from tuner.search.outcome import Outcome
from tuner.search.parameters import Parameters
from tuner.search.placing import PlaceStage
from tuner.search.promote import promote_best
from tuner.search.proposals import Proposals
from tuner.search.pruner import BoundPruner
from tuner.search.revision import study_key
from tuner.search.routes import Routes
from tuner.search.sampler import DecidedSampler, make_adviser
from tuner.search.screen import ScreenStage
from tuner.search.settings import Settings
from tuner.search.stopping import Budget
from tuner.search.transfer import Transfer
from tuner.slices.slice import Slice
from tuner.stores import Store, Trial
from tuner.upkeep import MOST_PROGRAM_BYTES
from tuner.work import Task


class Search:
    """One search of a workload on a slice. Build it, `run` it once.

    Several searches of one study, in any processes, share it: each takes candidates that no other one holds.

    Args:
        workload: what is laid out.
        spec: how another process finds it.
        slice_: what it is laid out on.
        toolchain: that compiles.
        screener: looks at candidates.
        compiler: compiles them.
        store: keeps everything.
        optuna_storage: has the Optuna study.
        settings: budget and behaviour.
        pruner: of the Optuna study; None for the one that ends what its bound shows to be slower.
        listener: is told what happens.
        jobs: compiles at once.
        joined: ends when another search has closed the study, and does not open it.
        lease_ttl_s: seconds after which others take over what this process held, if it vanishes.
        clock: monotonic, in seconds.
        pause: sleeps so many seconds.
    """

    def __init__(
        self,
        *,
        workload: Workload,
        spec: WorkloadSpec,
        slice_: Slice,
        toolchain: Toolchain,
        screener: Screener,
        compiler: Compiler,
        store: Store,
        optuna_storage: optuna.storages.BaseStorage,
        settings: Settings | None = None,
        pruner: optuna.pruners.BasePruner | None = None,
        listener: Listener = silent,
        measure: Measure | None = None,
        jobs: int = 1,
        joined: bool = False,
        lease_ttl_s: float = TTL_S,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._workload = workload
        self._slice = slice_
        self._settings = settings or Settings()
        self._listener = listener
        self._measure = measure
        self._store = store
        self._jax = toolchain.jax_release
        self._calibration = constants(store, slice_.generation_name, toolchain)
        self._degraded = tuple(map(Degraded.parse, self._settings.constraints.links))
        self._key = study_key(workload, slice_, toolchain, self._settings.constraints, self._calibration)
        subject = Subject(
            workload=self._key.workload, source=workload.source, spec=spec, slice=slice_, toolchain=toolchain
        )
        self._spec = spec
        self._toolchain = toolchain
        self._joined = joined
        self._study = store.open_study(self._key)
        self._crew = Crew(store, self._study.id, subject, ttl_s=lease_ttl_s, clock=clock, pause=pause)
        heartbeat = self._crew.heartbeat
        self._compiler = CachedCompiler(compiler, store, subject, heartbeat=heartbeat, pause=pause)
        self._screen = ScreenStage(
            workload=workload,
            slice_=slice_,
            calibration=self._calibration,
            screener=CachedScreener(screener, store, subject, heartbeat=heartbeat, pause=pause),
            reserve_hbm_bytes=self._settings.constraints.reserve_hbm_bytes,
            listener=listener,
            routes=Routes(slice_, self._calibration, self._degraded, jax=self._jax),
            clock=clock,
        )
        self._parameters = Parameters(workload.space)
        self._optuna = optuna.create_study(
            study_name=self._key.name,
            storage=optuna_storage,
            direction="minimize",
            sampler=DecidedSampler(),
            pruner=BoundPruner() if pruner is None else pruner,
            load_if_exists=True,
        )
        adviser = make_adviser(self._settings.sampler, self._parameters, slice_, seed=self._settings.seed)
        self._ledger = Ledger(
            store,
            self._study,
            self._optuna,
            optuna_storage,
            self._parameters,
            learner=None if adviser is None else adviser.learn,
            keeper=lambda: self._crew.keeper,
        )
        self._budget = Budget(
            settings=self._settings,
            clock=clock,
            started=clock(),
            spent_s=self._study.spent_s,
            durations_s=self._ledger.durations_s,
        )
        self._agenda = Agenda(
            workload=workload,
            slice_=slice_,
            screen=self._screen,
            ledger=self._ledger,
            parameters=self._parameters,
            settings=self._settings,
            budget=self._budget,
            transfer=Transfer(
                store.experience(self._key.workload.model, besides=self._study.id), workload.space, slice_.name
            ),
        )
        place = PlaceStage(
            slice_,
            self._calibration,
            self._degraded,
            jax=self._jax,
            reserve_hbm_bytes=self._settings.constraints.reserve_hbm_bytes,
        )
        proposals = (
            None
            if adviser is None
            else Proposals(
                workload=workload,
                slice_=slice_,
                screen=self._screen,
                ledger=self._ledger,
                adviser=adviser,
                calibration=self._calibration,
                degraded=self._degraded,
            )
        )
        self._compile = CompileStage(
            workload=workload,
            slice_=slice_,
            screen=self._screen,
            ledger=self._ledger,
            agenda=self._agenda,
            budget=self._budget,
            crew=self._crew,
            compiler=self._compiler,
            place=place,
            proposals=proposals,
            listener=listener,
            jobs=jobs,
            joined=joined,
            clock=clock,
        )

    def run(self) -> Outcome:
        """Runs the funnel. On KeyboardInterrupt, everything that was found is stored before the outcome returns."""
        agenda, interrupted = self._agenda, False
        with self._crew:
            try:
                self._begin()
                self._look_at_all()
                agenda.fill()
                self._compile.run()
            except KeyboardInterrupt:
                interrupted, agenda.stopped, agenda.proved = True, "it was told to stop", False
            self._close_run(ended=not interrupted and not self._compile.dismissed)
            self._listener(Stopped(reason=agenda.stopped, proved=agenda.proved))
            return self._outcome(interrupted=interrupted)

    def recheck(self, candidate: Candidate) -> Outcome:
        """Compiles and places one candidate and looks at nothing else: the winner under another toolchain, for example.

        It becomes a trial of the study, so that a later search compares with it and does not compile it again. If it
        does not run, it is among the `rejected` of the outcome. On KeyboardInterrupt the trial is interrupted.
        """
        with self._crew:
            self._reconcile()
            if candidate.digest not in self._ledger.trials:
                self._ledger.refuse(self._screen.look([candidate]))
                prospect = self._screen.prospects.get(candidate.digest)
                if prospect is not None:
                    self._compile.one(prospect)
                self._close_run(ended=False)
            return self._outcome(interrupted=False)

    def _begin(self) -> None:
        if not self._joined:
            self._store.publish(
                Task(
                    study_id=self._study.id,
                    key_digest=self._key.digest,
                    spec=self._spec,
                    slice_name=self._slice.name,
                    toolchain=self._toolchain,
                    settings=self._settings,
                    space=self._workload.space,
                )
            )
        self._reconcile()

    def _reconcile(self) -> None:
        """Mends the books, if they are this process's to keep."""
        if not self._crew.keeper:
            return
        self._ledger.reconcile(self._crew.alive(), grace_s=self._crew.ttl_s)
        self._ledger.refresh()

    def _close_run(self, *, ended: bool) -> None:
        """Stores what this run was. One that ended by itself speaks for the study, and closes it for workers."""
        proved = self._agenda.proved if ended else self._store.open_study(self._key).proved and self._compile.dismissed
        # Before the study closes: who leaves because it has closed takes over what is said here.
        self._store.close_run(self._study.id, proved=proved, spent_s=self._crew.kept_s)
        if ended:
            self._store.close_task(self._study.id)
            self._ledger.settle(self._crew.alive(), grace_s=self._crew.ttl_s)
            self._store.prune_programs(most_bytes=MOST_PROGRAM_BYTES)
            self._store.drop_old_leases()

    def _look_at_all(self) -> None:
        candidates, refused = self._screen.enumerate()
        self._store.count_refusals(self._study.id, refused)
        self._ledger.refuse(self._screen.look(candidates))

    def _outcome(self, *, interrupted: bool) -> Outcome:
        by_digest = self._ledger.trials
        tried = {name: by_digest[digest] for name, digest in self._agenda.baselines.items() if digest in by_digest}
        baselines = {name: trial for name, trial in tried.items() if trial.predicted_s is not None}
        measured, cut = (None, False) if interrupted else self._measured(baselines)
        wrong = wrong_candidates(self._store, self._key)
        right = [trial for trial in self._ledger.completed if trial.candidate.digest not in wrong]
        with self._crew.turn("promote"):
            plan, promoted = promote_best(
                store=self._store,
                compiler=self._compiler,
                key=self._key,
                best=min(right, key=lambda trial: (trial.predicted_s or 0.0, trial.number), default=None),
                baselines=baselines,
                missing=self._agenda.missing,
                proved=self._agenda.proved,
                margin=self._settings.margin,
                measured=measured,
            )
        return Outcome(
            study=self._study,
            trials=sorted(self._ledger.completed, key=lambda t: (t.predicted_s or 0.0, t.number)),
            rejected=sorted(
                (trial for trial in by_digest.values() if trial.rejection is not None),
                key=lambda trial: trial.numbers.get("needed_bytes", float("inf")),
            ),
            plan=plan,
            promoted=promoted,
            baselines=baselines,
            missing=self._agenda.missing,
            proved=self._agenda.proved,
            stopped=self._agenda.stopped,
            interrupted=interrupted or cut,
            exhausted=self._agenda.exhausted,
            measured=measured,
        )

    def _measured(self, baselines: Mapping[str, Trial]) -> tuple[MeasuredOutcome | None, bool]:
        """Measures what is promising, if devices are to be had; returns that, and whether it was told to stop."""
        if self._measure is None or not self._ledger.completed:
            return None, False
        active = self._store.active(self._key)
        predicted = Predicted(
            key=self._key,
            spec=self._spec,
            space=self._workload.space,
            trials=self._ledger.completed,
            baselines=baselines,
            incumbent=None if active is None else active.plan,
            error=self._calibration.relative_error,
            seed=self._settings.seed,
        )
        try:
            return self._measure(predicted), False
        except KeyboardInterrupt:
            return None, True
