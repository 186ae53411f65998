"""The funnel: enumerate, screen, compile, place, until nothing that is left can win or the budget is spent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import optuna

from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate
from tuner.network.cost import Degraded
from tuner.placements.placement import Placement
from tuner.plans.toolchain import Toolchain
from tuner.ports import Compiled, Compiler, Screener, Workload, WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.agenda import Agenda
from tuner.search.cache import CachedCompiler, CachedScreener, Subject
from tuner.search.events import Listener, Stopped, TrialEnded, TrialStarted, silent
from tuner.search.ledger import Ledger
from tuner.search.outcome import Outcome
from tuner.search.parameters import Parameters
from tuner.search.placing import PlaceStage
from tuner.search.promote import promote_best
from tuner.search.proposals import MOST_DRAWS, Proposal, Proposals
from tuner.search.prospects import Prospect
from tuner.search.pruner import BoundPruner
from tuner.search.revision import study_key
from tuner.search.routes import Routes
from tuner.search.sampler import DecidedSampler, make_adviser
from tuner.search.screen import ScreenStage
from tuner.search.settings import Settings
from tuner.search.stopping import Budget
from tuner.search.trials import bounded, rejected, running
from tuner.slices.slice import Slice
from tuner.stores import Store, Trial, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    trial: Trial
    started: float
    future: Future[tuple[Compiled | Rejection, bool]]


class Search:
    """One search of a workload on a slice. Build it, `run` it once."""

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
        jobs: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workload = workload
        self._slice = slice_
        self._settings = settings or Settings()
        self._listener = listener
        self._store = store
        self._jobs = jobs
        self._clock = clock
        self._jax = toolchain.jax_release
        self._calibration = calibration(slice_.generation_name)
        self._degraded = tuple(map(Degraded.parse, self._settings.constraints.links))
        self._key = study_key(workload, slice_, toolchain, self._settings.constraints, self._calibration)
        subject = Subject(
            workload=self._key.workload, source=workload.source, spec=spec, slice=slice_, toolchain=toolchain
        )
        self._compiler = CachedCompiler(compiler, store, subject)
        self._screen = ScreenStage(
            workload=workload,
            slice_=slice_,
            calibration=self._calibration,
            screener=CachedScreener(screener, store, subject),
            reserve_hbm_bytes=self._settings.constraints.reserve_hbm_bytes,
            listener=listener,
            routes=Routes(slice_, self._calibration, self._degraded, jax=self._jax),
            clock=clock,
        )
        self._parameters = Parameters(workload.space)
        self._study = store.open_study(self._key)
        self._optuna = optuna.create_study(
            study_name=self._key.name,
            storage=optuna_storage,
            direction="minimize",
            sampler=DecidedSampler(),
            pruner=BoundPruner() if pruner is None else pruner,
            load_if_exists=True,
        )
        adviser = make_adviser(self._settings.sampler, self._parameters, seed=self._settings.seed)
        self._ledger = Ledger(
            store,
            self._study,
            self._optuna,
            optuna_storage,
            self._parameters,
            learner=None if adviser is None else adviser.learn,
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
        )
        self._place = PlaceStage(
            slice_,
            self._calibration,
            self._degraded,
            jax=self._jax,
            reserve_hbm_bytes=self._settings.constraints.reserve_hbm_bytes,
        )
        self._proposals = (
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
        self._proposed: dict[int, Placement] = {}
        self._busy: set[str] = set()
        self._stale = 0

    def run(self) -> Outcome:
        """Runs the funnel. On KeyboardInterrupt, everything that was found is stored before the outcome returns."""
        agenda, interrupted = self._agenda, False
        try:
            self._ledger.reconcile()
            self._look_at_all()
            agenda.fill()
            self._compile_all()
        except KeyboardInterrupt:
            interrupted, agenda.stopped, agenda.proved = True, "it was told to stop", False
        self._store.close_run(self._study.id, proved=agenda.proved, spent_s=self._budget.elapsed_s)
        self._listener(Stopped(reason=agenda.stopped, proved=agenda.proved))
        return self._outcome(interrupted=interrupted)

    def recheck(self, candidate: Candidate) -> Outcome:
        """Compiles and places one candidate and looks at nothing else: the winner under another toolchain, for example.

        It becomes a trial of the study, so that a later search compares with it and does not compile it again. If it
        does not run, it is among the `rejected` of the outcome. On KeyboardInterrupt the trial is interrupted.
        """
        self._ledger.reconcile()
        if candidate.digest not in self._ledger.trials:
            self._ledger.refuse(self._screen.look([candidate]))
            prospect = self._screen.prospects.get(candidate.digest)
            if prospect is not None:
                self._retry(prospect)
            self._store.close_run(self._study.id, proved=False, spent_s=self._budget.elapsed_s)
        return self._outcome(interrupted=False)

    def _retry(self, prospect: Prospect) -> None:
        number = self._ledger.open(prospect.candidate)
        trial = self._ledger.start(running(number, prospect, ""))
        self._listener(TrialStarted(trial=trial))
        started = self._clock()
        try:
            compiled, cached = self._compiler.compile(prospect.candidate)
        except BaseException:
            self._ledger.end(replace(trial, state=TrialState.INTERRUPTED))
            raise
        self._finish(trial, compiled, seconds=self._clock() - started, cached=cached)

    def _look_at_all(self) -> None:
        candidates, refused = self._screen.enumerate()
        self._store.count_refusals(self._study.id, refused)
        self._ledger.refuse(self._screen.look(candidates))

    def _compile_all(self) -> None:
        jobs: deque[_Job] = deque()
        pool = ThreadPoolExecutor(max_workers=self._jobs)
        try:
            while True:
                while len(jobs) < self._jobs and (trial := self._choose(len(jobs))) is not None:
                    future = pool.submit(self._compiler.compile, trial.candidate)
                    jobs.append(_Job(trial=trial, started=self._clock(), future=future))
                if not jobs:
                    break
                # Results are taken in the order of their start, so that a run can be repeated.
                outcome, cached = jobs[0].future.result()
                self._finish(jobs[0].trial, outcome, seconds=self._clock() - jobs[0].started, cached=cached)
                jobs.popleft()
        except BaseException:
            # A compile that runs is not waited for: whoever owns the compiler ends it.
            pool.shutdown(wait=False, cancel_futures=True)
            for job in jobs:
                if self._ledger.is_open(job.trial.number):
                    self._ledger.end(replace(job.trial, state=TrialState.INTERRUPTED))
            raise
        pool.shutdown()

    def _choose(self, compiling: int) -> Trial | None:
        """Starts and returns the next trial to compile; None if there is none, with the reason in the agenda."""
        while True:
            asked = self._ledger.enqueued()
            if asked is not None:
                number, candidate = asked
                prospect = self._judge(number, candidate)
                baseline = ""
                if prospect is None:
                    continue
            else:
                chosen = self._agenda.next(compiling)
                if chosen is None:
                    return None
                proposal = None if chosen.forced else self._propose()
                prospect, baseline = (chosen.prospect if proposal is None else proposal.prospect), chosen.baseline
                number = self._ledger.open(prospect.candidate)
                if proposal is not None:
                    self._proposed[number] = proposal.placement
            best = self._ledger.best
            pruned = self._ledger.hopeless(number, prospect.bound.step_s)
            self._agenda.drop(prospect.candidate)
            if pruned and not baseline and best is not None and best.predicted_s is not None:
                self._proposed.pop(number, None)
                self._ledger.end(replace(bounded(prospect, best.predicted_s), number=number))
                continue
            trial = self._ledger.start(running(number, prospect, baseline))
            self._busy.add(trial.candidate.digest)
            self._listener(TrialStarted(trial=trial))
            return trial

    def _propose(self) -> Proposal | None:
        """Returns what the sampler proposes; None for best-first, and where another one has nothing new to compile."""
        if self._proposals is None or self._stale >= MOST_DRAWS:
            self._stale = 0
            return None
        proposal = self._proposals.draw(self._busy)
        known = proposal is not None and proposal.prospect.candidate.digest in self._ledger.trials
        self._stale = self._stale + 1 if known else 0
        return proposal

    def _judge(self, number: int, candidate: Candidate) -> Prospect | None:
        """Returns the prospect of a trial that somebody enqueued, or ends it: illegal, known or rejected."""
        if candidate.layout.devices != self._slice.num_devices:
            refusal: Rejection | None = Rejection(
                stage=Stage.ENUMERATE,
                reason=RejectReason.INDIVISIBLE,
                detail=f"{candidate.layout} is for {candidate.layout.devices} devices, {self._slice.name} has "
                f"{self._slice.num_devices}",
            )
        else:
            refusal = self._workload.verdict(candidate.layout)
        if refusal is not None:
            self._ledger.end(replace(rejected(candidate, refusal), number=number))
            return None
        known = candidate.digest in self._ledger.trials
        refusals = [] if known or self._screen.classes(candidate) else self._screen.look([candidate])
        if refusals:
            self._ledger.end(replace(refusals[0], number=number))
            return None
        candidates = [prospect.candidate for prospect in self._screen.classes(candidate)] or [candidate]
        fresh = next((each for each in candidates if each.digest not in self._ledger.trials), None)
        if fresh is None:
            self._ledger.repeat(number, candidates[0])
            return None
        return self._screen.prospects[fresh.digest]

    def _finish(self, trial: Trial, outcome: Compiled | Rejection, *, seconds: float, cached: bool) -> None:
        previous = self._ledger.best
        if not cached:
            self._budget.durations_s.append(seconds)
        ended, placements = self._place.end(trial, outcome, self._proposed.pop(trial.number, None))
        ended = self._ledger.end(ended)
        self._busy.discard(ended.candidate.digest)
        if ended.baseline and ended.rejection is not None:
            self._agenda.missing[ended.baseline] = ended.rejection.detail
        self._listener(
            TrialEnded(
                trial=ended,
                cached=cached,
                compile_s=outcome.compile_s if isinstance(outcome, Compiled) else seconds,
                placements=placements,
                best=self._ledger.best is not previous,
            )
        )

    def _outcome(self, *, interrupted: bool) -> Outcome:
        by_digest = self._ledger.trials
        tried = {name: by_digest[digest] for name, digest in self._agenda.baselines.items() if digest in by_digest}
        baselines = {name: trial for name, trial in tried.items() if trial.predicted_s is not None}
        plan, promoted = promote_best(
            store=self._store,
            compiler=self._compiler,
            key=self._key,
            best=self._ledger.best,
            baselines=baselines,
            missing=self._agenda.missing,
            proved=self._agenda.proved,
            margin=self._settings.margin,
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
            interrupted=interrupted,
            exhausted=self._agenda.exhausted,
        )
