"""The funnel: enumerate, screen, compile, place, until nothing that is left can win or the budget is spent."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import optuna

from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate
from tuner.network.cost import Degraded
from tuner.placements.ranking import rank_with
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import Compiled, Compiler, Screener, Workload, WorkloadSpec
from tuner.rejections import Rejection
from tuner.search.cache import CachedCompiler, CachedScreener, Subject
from tuner.search.events import Listener, Stopped, TrialEnded, TrialStarted, silent
from tuner.search.ledger import Ledger
from tuner.search.outcome import Outcome
from tuner.search.parameters import Parameters, Params
from tuner.search.promote import promote_best
from tuner.search.prospects import Prospect, Queue
from tuner.search.pruner import BoundPruner
from tuner.search.revision import model_revision
from tuner.search.routes import Routes, missing_link
from tuner.search.sampler import make_sampler
from tuner.search.screen import ScreenStage
from tuner.search.settings import SamplerName, Settings
from tuner.search.stopping import Budget, unimproved, unpromising
from tuner.search.trials import bounded, crowded_out, placed, running, uncompiled
from tuner.slices.slice import Slice
from tuner.stores import Store, StudyKey, Trial, TrialState
from tuner.timeline.ranker import Ranker

_MOST_REPEATS = 100
"""A sampler that proposes so many known or illegal candidates in a row is given the head of the queue instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    trial: Trial
    started: float
    future: Future[tuple[Compiled | Rejection, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Next:
    """What to try next: the name of the baseline if it is one, and whether the sampler has no say."""

    prospect: Prospect
    baseline: str = ""
    forced: bool = False


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
        key = WorkloadKey.of(workload.name, workload.identity)
        subject = Subject(workload=key, source=workload.source, spec=spec, slice=slice_, toolchain=toolchain)
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
        self._key = StudyKey(
            workload=key,
            slice=slice_,
            toolchain=toolchain,
            constraints=self._settings.constraints,
            space_revision=model_revision(workload, self._calibration),
        )
        self._study = store.open_study(self._key)
        self._optuna = optuna.create_study(
            study_name=self._key.name,
            storage=optuna_storage,
            direction="minimize",
            sampler=make_sampler(self._settings.sampler, seed=self._settings.seed, pop=self._upcoming_params),
            pruner=BoundPruner(),
            load_if_exists=True,
        )
        self._ledger = Ledger(store, self._study, self._optuna, self._parameters)
        self._budget = Budget(settings=self._settings, clock=clock, started=clock(), spent_s=self._study.spent_s)
        self._queue = Queue(())
        self._forced: deque[_Next] = deque()
        self._variants: deque[Prospect] = deque()
        self._tuned: Candidate | None = None
        self._upcoming: Prospect | None = None
        self._baselines: dict[str, str] = {}
        self._missing: dict[str, str] = {}
        self._repeats = 0
        self._stopped = ""
        self._proved = False

    def run(self) -> Outcome:
        """Runs the funnel. On KeyboardInterrupt, everything that was found is stored before the outcome returns."""
        interrupted = False
        try:
            self._ledger.reconcile()
            self._look_at_all()
            self._force_baselines()
            self._compile_all()
        except KeyboardInterrupt:
            interrupted, self._stopped, self._proved = True, "it was told to stop", False
        self._store.close_run(self._study.id, proved=self._proved, spent_s=self._budget.elapsed_s)
        self._listener(Stopped(reason=self._stopped, proved=self._proved))
        return self._outcome(interrupted)

    def _look_at_all(self) -> None:
        candidates, refused = self._screen.enumerate()
        self._store.count_refusals(self._study.id, refused)
        self._ledger.refuse(self._screen.look(candidates))
        self._queue = Queue(
            prospect for digest, prospect in self._screen.prospects.items() if digest not in self._ledger.trials
        )

    def _force_baselines(self) -> None:
        """Puts the baselines before everything else: A as the workload declares it, B the fewest received bytes."""
        prospects = self._screen.prospects
        for name, layout in self._workload.baselines(self._slice).items():
            refusal = self._workload.verdict(layout)
            if refusal is not None:
                self._missing[name] = refusal.detail
            else:
                self._force(name, self._screen.routes.in_default_order(Candidate(layout=layout)))
        fewest = min(
            prospects.values(), key=lambda p: (p.received_bytes, p.estimate_s, p.candidate.digest), default=None
        )
        if fewest is not None:
            candidate = self._screen.routes.in_default_order(fewest.candidate)
            if candidate.digest not in prospects:
                self._ledger.refuse(self._screen.look([candidate]))
            self._force("B", candidate)

    def _force(self, name: str, candidate: Candidate) -> None:
        self._baselines[name] = candidate.digest
        known = self._ledger.trials.get(candidate.digest)
        waiting = any(entry.prospect.candidate == candidate for entry in self._forced)
        if known is not None and known.rejection is not None:
            self._missing[name] = known.rejection.detail
        elif known is None and not waiting:
            self._forced.append(_Next(prospect=self._screen.prospects[candidate.digest], baseline=name, forced=True))

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
                self._finish(jobs[0], outcome, cached=cached)
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
        """Starts and returns the next trial to compile; None if there is none, with the reason in `_stopped`."""
        while True:
            chosen = self._next(compiling)
            if chosen is None:
                return None
            number, prospect = self._ask(chosen.prospect, forced=chosen.forced or self._repeats >= _MOST_REPEATS)
            self._repeats = 0 if prospect is not None else self._repeats + 1
            if prospect is None:
                continue
            best = self._ledger.best
            pruned = self._ledger.hopeless(number, prospect.bound.step_s)
            if pruned and not chosen.baseline and best is not None and best.predicted_s is not None:
                self._ledger.end(replace(bounded(prospect, best.predicted_s), number=number))
                self._queue.drop(prospect.candidate.digest)
                continue
            self._queue.drop(prospect.candidate.digest)
            trial = self._ledger.start(running(number, prospect, chosen.baseline))
            self._listener(TrialStarted(trial=trial))
            return trial

    def _next(self, compiling: int) -> _Next | None:
        """Returns what to try next; None if the search should stop, with the reason in `_stopped`."""
        if self._forced:
            return self._forced.popleft()
        best = self._ledger.best
        if best is not None and best.predicted_s is not None:
            best_s = best.predicted_s
            self._ledger.refuse([bounded(prospect, best_s) for prospect in self._queue.hopeless(best_s)])
        spent = self._budget.exhausted(self._ledger.compiled + compiling)
        if spent and any(not trial.baseline for trial in self._ledger.completed):
            self._stopped = spent
            return None
        if best is not None and unimproved(self._ledger) >= self._settings.tune_after:
            self._add_variants(best)
        head = self._queue.head
        if self._variants:
            return _Next(prospect=self._variants.popleft(), forced=True)
        if head is None:
            self._stopped, self._proved = "every layout was tried or shown to be slower", self._sound
        elif reason := unpromising(head, self._ledger, self._settings, len(self._queue)):
            self._stopped = reason
        else:
            return _Next(prospect=head)
        if compiling or best is None:
            return None
        self._add_variants(best)
        return _Next(prospect=self._variants.popleft(), forced=True) if self._variants else None

    @property
    def _sound(self) -> bool:
        """True if no bound was found above its prediction and no class of placements was left out.

        Only then does a search prove anything.
        """
        violated = any("bound_violation_s" in trial.numbers for trial in self._ledger.completed)
        return bool(self._ledger.completed) and not violated and not self._screen.routes.left_out

    def _add_variants(self, best: Trial) -> None:
        """Lines up other kernel blocks and compiler flags for the best layout, each one step away from the best.

        When one of them becomes the best, its neighbours follow: a coordinate descent that ends because the choices do.
        """
        if self._tuned == best.candidate:
            return
        self._tuned = best.candidate
        variants = [replace(best.candidate, compiler_options=other) for other in self._parameters.flags(best.candidate)]
        variants += [
            replace(best.candidate, layout=other)
            for other in self._workload.tuned(best.candidate.layout, self._slice)[: self._settings.variants]
        ]
        fresh = [variant for variant in variants if variant.digest not in self._ledger.trials]
        self._ledger.refuse(self._screen.look([v for v in fresh if v.digest not in self._screen.prospects]))
        passed = [self._screen.prospects[v.digest] for v in fresh if v.digest in self._screen.prospects]
        self._variants = deque(passed)

    def _ask(self, prospect: Prospect, *, forced: bool) -> tuple[int, Prospect | None]:
        """Asks Optuna for a trial and returns its number and what its sampler proposed.

        The best-first sampler proposes `prospect`; another one is made to only if it is forced. None means that the
        proposal went no further.
        """
        self._upcoming = prospect
        ours = self._settings.sampler is SamplerName.BEST_FIRST
        if forced and not ours:
            self._optuna.enqueue_trial(self._parameters.params(prospect.candidate))
        number, candidate = self._ledger.ask()
        if forced or ours:
            return number, prospect
        known = self._ledger.trials.get(candidate.digest)
        if known is not None:
            self._ledger.discard(number, value_s=known.predicted_s)
            return number, None
        legal = candidate.layout.devices == self._slice.num_devices and not self._workload.verdict(candidate.layout)
        if not legal:
            self._ledger.discard(number)
            return number, None
        if not self._screen.classes(candidate):
            refusals = self._screen.look([candidate])
            if refusals:
                self._ledger.end(replace(refusals[0], number=number))
                return number, None
        classes = self._screen.classes(candidate)
        fresh = next((prospect for prospect in classes if prospect.candidate.digest not in self._ledger.trials), None)
        if fresh is None:  # every class of placements was tried
            tried = [self._ledger.trials[prospect.candidate.digest].predicted_s for prospect in classes]
            self._ledger.discard(number, value_s=min((value for value in tried if value is not None), default=None))
        return number, fresh

    def _finish(self, job: _Job, outcome: Compiled | Rejection, *, cached: bool) -> None:
        previous, placements = self._ledger.best, 0
        seconds = self._clock() - job.started
        if not cached:
            self._budget.durations_s.append(seconds)
        refusal = (
            crowded_out(outcome, self._slice, self._settings.constraints.reserve_hbm_bytes)
            if isinstance(outcome, Compiled)
            else outcome
        )
        if refusal is None:
            assert isinstance(outcome, Compiled)
            ranker = Ranker(outcome.program, self._slice, job.trial.candidate.layout, self._calibration, self._degraded)
            ranked = rank_with(ranker, jax=self._jax, like=job.trial.candidate.placement)
            placements = ranked.scored
            if math.isfinite(ranked.best[0].step_s):
                prediction = ranker.predict(ranked.best[0].placement)
                ended = self._ledger.end(placed(job.trial, outcome, ranked, prediction))
            else:
                refusal = ranker.verdict(ranked.best[0].placement) or missing_link(self._slice)
        if refusal is not None:
            ended = self._ledger.end(uncompiled(job.trial, refusal))
            if ended.baseline:
                self._missing[ended.baseline] = refusal.detail
        self._listener(
            TrialEnded(
                trial=ended,
                cached=cached,
                compile_s=outcome.compile_s if isinstance(outcome, Compiled) else seconds,
                placements=placements,
                best=self._ledger.best is not previous,
            )
        )

    def _upcoming_params(self) -> Params:
        assert self._upcoming is not None
        return self._parameters.params(self._upcoming.candidate)

    def _outcome(self, interrupted: bool) -> Outcome:
        by_digest = self._ledger.trials
        tried = {name: by_digest[digest] for name, digest in self._baselines.items() if digest in by_digest}
        baselines = {name: trial for name, trial in tried.items() if trial.predicted_s is not None}
        plan, promoted = promote_best(
            store=self._store,
            compiler=self._compiler,
            key=self._key,
            best=self._ledger.best,
            baselines=baselines,
            missing=self._missing,
            proved=self._proved,
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
            missing=self._missing,
            proved=self._proved,
            stopped=self._stopped,
            interrupted=interrupted,
        )
