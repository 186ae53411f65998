"""The funnel: enumerate, screen, compile, place, until nothing that is left can win or the budget is spent."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import optuna

from tuner.calibration.calibration import Calibration, calibration
from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import enumerate_layouts
from tuner.placements.search import RankedPlacements, rank
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import Compiled, Compiler, Screener, Workload
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.screening.bounds import lower_bound
from tuner.screening.estimate import estimate
from tuner.screening.memory import memory_rejection
from tuner.search.cache import CachedCompiler, CachedScreener, Subject
from tuner.search.events import (
    Enumerated,
    Listener,
    ScreenEnded,
    Screening,
    Stopped,
    TrialEnded,
    TrialStarted,
    silent,
)
from tuner.search.ledger import Ledger, rejected
from tuner.search.outcome import Outcome
from tuner.search.parameters import Parameters, Params
from tuner.search.promote import promote_best
from tuner.search.prospects import Prospect, Queue
from tuner.search.pruner import BoundPruner
from tuner.search.revision import model_revision
from tuner.search.sampler import make_sampler
from tuner.search.settings import SamplerName, Settings
from tuner.slices.slice import Slice
from tuner.stores import Store, StudyKey, Trial, TrialState

Compiling = Future[tuple[Compiled | Rejection, bool]]


@dataclass(slots=True)
class _Budget:
    """Time and trials that are left. Times of earlier runs of the study count."""

    settings: Settings
    clock: Callable[[], float]
    started: float
    spent_s: float

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.started

    def exhausted(self, compiled: int, expected_s: float) -> str:
        """Returns why there is no room for another compile, or an empty text."""
        limit, total = self.settings.budget_s, self.spent_s + self.elapsed_s
        if self.settings.max_trials is not None and compiled >= self.settings.max_trials:
            return f"{compiled} candidates were compiled, as many as asked for"
        if limit is not None and total + expected_s > limit:
            earlier = f", {self.spent_s:.0f} s of it in earlier runs" if self.spent_s else ""
            return f"the budget of {limit:.0f} s is spent ({total:.0f} s{earlier})"
        return ""


class Search:
    """One search of a workload on a slice. Build it, `run` it once."""

    def __init__(
        self,
        *,
        workload: Workload,
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
        self._calibration: Calibration = calibration(slice_.generation_name)
        key = WorkloadKey.of(workload.name, workload.identity)
        self._subject = Subject(workload=key, spec=workload.spec, slice=slice_, toolchain=toolchain)
        self._screener = CachedScreener(screener, store, self._subject)
        self._compiler = CachedCompiler(compiler, store, self._subject)
        self._parameters = Parameters(workload.space)
        self._key = StudyKey(
            workload=key,
            slice=slice_,
            toolchain=toolchain,
            constraints=self._settings.constraints,
            space_revision=model_revision(workload.space, self._calibration),
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
        self._upcoming: Prospect | None = None
        self._queue = Queue(())
        self._forced: deque[tuple[str, Prospect]] = deque()
        self._prospects: dict[str, Prospect] = {}
        self._missing: dict[str, str] = {}
        self._baselines: dict[str, str] = {}
        self._durations: list[float] = []
        self._tuned = False
        self._stopped = ""
        self._proved = False

    def run(self) -> Outcome:
        """Runs the funnel. On KeyboardInterrupt everything that was found is stored before the outcome returns."""
        budget = _Budget(settings=self._settings, clock=self._clock, started=self._clock(), spent_s=self._study.spent_s)
        interrupted = False
        try:
            self._ledger.reconcile()
            self._screen_all()
            self._force_baselines()
            self._compile_all(budget)
        except KeyboardInterrupt:
            interrupted, self._stopped, self._proved = True, "it was told to stop", False
        self._store.close_run(self._study.id, proved=self._proved, spent_s=budget.elapsed_s)
        self._listener(Stopped(reason=self._stopped, proved=self._proved))
        return self._outcome(interrupted)

    # -- enumerate and screen

    def _screen_all(self) -> None:
        started = self._clock()
        layouts, refused = [], Counter[str]()
        for outcome in enumerate_layouts(self._workload.space, self._slice.num_devices, self._workload.verdict):
            if isinstance(outcome, Rejection):
                refused[outcome.reason.value] += 1
            else:
                layouts.append(outcome)
        self._store.count_refusals(self._study.id, refused)
        self._listener(Enumerated(legal=len(layouts), refused=refused))
        candidates = [self._initial(layout) for layout in layouts]
        for layout in self._workload.baselines(self._slice).values():
            candidate = Candidate(layout=layout)
            if self._workload.verdict(layout) is None and candidate not in candidates:
                candidates.append(candidate)
        refusals = self._screen(candidates)
        self._ledger.refuse(refusals)
        self._queue = Queue(p for p in self._prospects.values() if p.candidate.digest not in self._ledger.trials)
        reasons = Counter(t.rejection.reason.value for t in refusals if t.rejection is not None)
        self._listener(ScreenEnded(open=len(self._queue), rejected=reasons, elapsed_s=self._clock() - started))

    def _screen(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Screens candidates into `_prospects`; returns the trials of those that are rejected."""
        refusals: list[Trial] = []
        cached_count = 0
        for done, (candidate, outcome, cached) in enumerate(self._screener.screen(candidates), start=1):
            cached_count += cached
            self._listener(Screening(done=done, total=len(candidates), cached=cached_count))
            if isinstance(outcome, Rejection):
                refusals.append(rejected(candidate, outcome))
                continue
            bound = lower_bound(outcome, self._slice, self._calibration)
            too_big = memory_rejection(outcome, self._slice, reserve_bytes=self._settings.constraints.reserve_hbm_bytes)
            if too_big is not None:
                refusals.append(rejected(candidate, too_big, bound_s=bound.step_s))
                continue
            self._prospects[candidate.digest] = Prospect(
                candidate=candidate,
                screened=outcome,
                bound=bound,
                estimate_s=estimate(outcome, self._slice, self._calibration),
            )
        return refusals

    def _initial(self, layout: Layout) -> Candidate:
        """Returns the candidate that a layout enters the funnel as: with the kernel blocks that suit it best."""
        variants = self._workload.tuned(layout, self._slice)
        return Candidate(layout=variants[0] if variants else layout)

    def _force_baselines(self) -> None:
        for name, layout in self._workload.baselines(self._slice).items():
            self._force(name, Candidate(layout=layout), self._workload.verdict(layout))
        if self._prospects:
            fewest = min(self._prospects.values(), key=lambda p: (p.received_bytes, p.estimate_s, p.candidate.digest))
            self._force("B", fewest.candidate, None)

    def _force(self, name: str, candidate: Candidate, refused: Rejection | None) -> None:
        self._baselines[name] = candidate.digest
        known = self._ledger.trials.get(candidate.digest)
        prospect = self._prospects.get(candidate.digest)
        if refused is not None:
            self._missing[name] = refused.detail
        elif known is not None and known.predicted_s is None:
            self._missing[name] = known.rejection.detail if known.rejection else "it failed"
        elif known is None and prospect is not None and name not in dict(self._forced):
            self._forced.append((name, prospect))

    # -- compile and place

    def _compile_all(self, budget: _Budget) -> None:
        pending: deque[tuple[Trial, Prospect, float, Compiling]] = deque()
        with ThreadPoolExecutor(max_workers=self._jobs) as pool:
            try:
                while True:
                    while len(pending) < self._jobs and (chosen := self._choose(budget, len(pending))) is not None:
                        trial, prospect = chosen
                        started = self._clock()
                        pending.append((trial, prospect, started, pool.submit(self._compiler.compile, trial.candidate)))
                    if not pending:
                        return
                    # Results are taken in the order of their start, so that a run can be repeated.
                    trial, prospect, started, future = pending.popleft()
                    outcome, cached = future.result()
                    self._finish(trial, prospect, outcome, cached=cached, seconds=self._clock() - started)
            except KeyboardInterrupt:
                for trial, _, _, future in pending:
                    future.cancel()
                    self._ledger.end(replace(trial, state=TrialState.INTERRUPTED))
                raise

    def _choose(self, budget: _Budget, running: int) -> tuple[Trial, Prospect] | None:
        """Takes the next trial to compile; None if there is none, with the reason in `_stopped`."""
        while True:
            prospect, baseline = self._next(budget, running)
            if prospect is None:
                return None
            self._upcoming = prospect
            if self._settings.sampler is not SamplerName.BEST_FIRST and baseline:
                self._optuna.enqueue_trial(self._parameters.params(prospect.candidate))
            number, candidate = self._ledger.ask()
            if self._settings.sampler is not SamplerName.BEST_FIRST and not baseline:
                proposed = self._proposed(number, candidate)
                if proposed is None:
                    continue
                prospect = proposed
            trial = Trial(
                number=number,
                candidate=prospect.candidate,
                state=TrialState.RUNNING,
                stage=Stage.SCREEN,
                baseline=baseline,
                bound_s=prospect.bound.step_s,
                estimate_s=prospect.estimate_s,
                lowered_digest=prospect.screened.digest,
            )
            if self._ledger.hopeless(number, prospect.bound.step_s) and not baseline:
                self._ledger.end(self._bounded(trial))
                continue
            self._queue.drop(prospect.candidate.digest)
            trial = self._ledger.start(trial)
            self._listener(TrialStarted(trial=trial))
            return trial, prospect

    def _next(self, budget: _Budget, running: int) -> tuple[Prospect | None, str]:
        """Returns the most promising prospect and its baseline's name; None if the search should stop."""
        if self._forced:
            baseline, prospect = self._forced.popleft()
            return prospect, baseline
        best = self._ledger.best
        if best is not None and best.predicted_s is not None:
            self._refuse_hopeless(best.predicted_s)
        head = self._queue.head
        spent = budget.exhausted(self._ledger.compiled + running, self._expected_s)
        if head is None:
            self._stopped, self._proved = "every layout was tried or shown to be slower", not running
        elif best is not None and spent and any(not t.baseline for t in self._ledger.completed):
            self._stopped = spent
            return None, ""
        elif best is None or not (reason := self._unpromising(head, best)):
            return head, ""
        else:
            self._stopped = reason
        if running or best is None or spent or self._tuned:
            return None, ""
        self._add_variants(best)
        return self._next(budget, running) if self._forced else (None, "")

    def _unpromising(self, head: Prospect, best: Trial) -> str:
        """Returns why the rest of the queue is not worth a compile, short of a proof; empty if it is."""
        settings = self._settings
        assert best.predicted_s is not None
        ratios = sorted(t.predicted_s / t.estimate_s for t in self._ledger.completed if t.estimate_s and t.predicted_s)
        bias = ratios[len(ratios) // 2] if ratios else 1.0
        if settings.slack is not None and head.estimate_s * bias > best.predicted_s * (1 + settings.slack):
            return (
                f"the next of {len(self._queue)} open layouts is estimated at {head.estimate_s * bias:.3f} s, "
                f"{settings.slack:.0%} or more above the best"
            )
        since = sum(t.number > best.number and not t.baseline for t in self._ledger.trials.values() if t.predicted_s)
        if settings.patience is not None and since >= settings.patience:
            return f"{since} candidates in a row were not better ({len(self._queue)} layouts are open)"
        return ""

    def _add_variants(self, best: Trial) -> None:
        """Puts kernel blocks and compiler flags of the best layouts in front of the queue, once."""
        self._tuned = True
        leaders = sorted(self._ledger.completed, key=lambda t: (t.predicted_s or 0.0, t.number))
        for leader in leaders[: self._settings.tuned_layouts]:
            variants = [
                Candidate(layout=layout, compiler_options=leader.candidate.compiler_options)
                for layout in self._workload.tuned(leader.candidate.layout, self._slice)[:3]
            ]
            variants += [
                Candidate(
                    layout=leader.candidate.layout,
                    compiler_options=((choice.name, str(value)),),
                )
                for choice in self._workload.space.compiler
                for value in choice.values[1:]
            ]
            fresh = [v for v in variants if v.digest not in self._ledger.trials and v.digest not in self._prospects]
            self._ledger.refuse(self._screen(fresh))
            self._forced.extend(("", self._prospects[v.digest]) for v in fresh if v.digest in self._prospects)

    def _proposed(self, number: int, candidate: Candidate) -> Prospect | None:
        """Looks at what a sampler other than our own proposed; ends the trial and returns None if it goes no further."""
        known = self._ledger.trials.get(candidate.digest)
        refusal = self._workload.verdict(candidate.layout)
        if candidate.layout.devices != self._slice.num_devices:
            refusal = Rejection(
                stage=Stage.ENUMERATE,
                reason=RejectReason.INDIVISIBLE,
                detail=f"{candidate.layout} has {candidate.layout.devices} devices, {self._slice.num_devices} are there",
            )
        if refusal is not None:
            self._ledger.discard(number)
            return None
        if known is not None:
            self._ledger.discard(number, value_s=known.predicted_s)
            return None
        if candidate.digest not in self._prospects:
            refusals = self._screen([candidate])
            if refusals:
                self._ledger.end(replace(refusals[0], number=number))
                return None
        return self._prospects[candidate.digest]

    def _finish(
        self, trial: Trial, prospect: Prospect, outcome: Compiled | Rejection, *, cached: bool, seconds: float
    ) -> None:
        best = self._ledger.best
        if isinstance(outcome, Rejection):
            ended = replace(
                trial,
                state=TrialState.REJECTED,
                stage=outcome.stage,
                rejection=outcome,
                numbers=dict(outcome.numbers),
            )
            if trial.baseline:
                self._missing[trial.baseline] = outcome.detail
            placements = 0
        else:
            ranked = rank(outcome.program, self._slice, trial.candidate.layout, self._calibration)
            ended, placements = (
                _placed(trial, prospect, outcome, ranked, self._reserve_rejection(outcome)),
                ranked.count,
            )
        if not cached:
            self._durations.append(seconds)
        ended = self._ledger.end(ended)
        better = ended.predicted_s is not None and (
            best is None or best.predicted_s is None or ended.predicted_s < best.predicted_s
        )
        self._listener(
            TrialEnded(
                trial=ended,
                cached=cached,
                compile_s=outcome.compile_s if isinstance(outcome, Compiled) else seconds,
                placements=placements,
                best=better,
            )
        )

    def _reserve_rejection(self, compiled: Compiled) -> Rejection | None:
        """Returns why a program that compiled still does not fit beside what else lives on the chip."""
        memory = compiled.program.memory
        available = self._slice.generation.hbm_bytes - self._settings.constraints.reserve_hbm_bytes
        if memory is None or memory.total_bytes <= available:
            return None
        return Rejection(
            stage=Stage.COMPILE,
            reason=RejectReason.HBM,
            detail=f"needs {memory.total_bytes} bytes of HBM, {available} are free beside the reserve",
            numbers={"needed_bytes": memory.total_bytes, "available_bytes": available},
        )

    def _bounded(self, trial: Trial) -> Trial:
        best = self._ledger.best
        best_s = best.predicted_s if best is not None else None
        rejection = Rejection(
            stage=Stage.SCREEN,
            reason=RejectReason.BOUND,
            detail=f"no step can be faster than {trial.bound_s:.4f} s, the best prediction is {best_s:.4f} s",
            numbers={"bound_s": trial.bound_s or 0.0, "best_s": best_s or 0.0},
        )
        return replace(
            trial, state=TrialState.REJECTED, stage=Stage.SCREEN, rejection=rejection, numbers=dict(rejection.numbers)
        )

    def _refuse_hopeless(self, best_s: float) -> None:
        gone = self._queue.hopeless(best_s)
        if gone:
            self._ledger.refuse(
                [
                    self._bounded(
                        Trial(
                            number=0,
                            candidate=p.candidate,
                            state=TrialState.REJECTED,
                            stage=Stage.SCREEN,
                            bound_s=p.bound.step_s,
                            estimate_s=p.estimate_s,
                        )
                    )
                    for p in gone
                ]
            )

    @property
    def _expected_s(self) -> float:
        return sorted(self._durations)[len(self._durations) // 2] if self._durations else 0.0

    def _upcoming_params(self) -> Params:
        assert self._upcoming is not None
        return self._parameters.params(self._upcoming.candidate)

    # -- the end

    def _outcome(self, interrupted: bool) -> Outcome:
        by_digest = self._ledger.trials
        baselines = {
            name: by_digest[digest]
            for name, digest in self._baselines.items()
            if digest in by_digest and by_digest[digest].predicted_s is not None
        }
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
                (t for t in by_digest.values() if t.rejection is not None),
                key=lambda t: t.numbers.get("needed_bytes", float("inf")),
            ),
            plan=plan,
            promoted=promoted,
            baselines=baselines,
            missing=self._missing,
            proved=self._proved,
            stopped=self._stopped,
            interrupted=interrupted,
        )


def _placed(
    trial: Trial, prospect: Prospect, compiled: Compiled, ranked: RankedPlacements, refusal: Rejection | None
) -> Trial:
    best = ranked.best.prediction
    memory = compiled.program.memory
    numbers = {
        "default_step_s": ranked.default.prediction.step_s,
        "compute_s": best.compute_s,
        "attention_s": best.attention_s,
        "exposed_s": best.exposed_s,
        "compile_s": compiled.compile_s,
        "received_bytes": best.received_bytes,
        "placements": float(ranked.count),
    }
    if memory is not None:
        numbers |= {"memory_bytes": float(memory.total_bytes), "argument_bytes": float(memory.argument_bytes)}
    if prospect.bound.step_s > best.step_s:
        # The bound must never be above the truth; one violation means that the study proves nothing.
        numbers["bound_violation_s"] = prospect.bound.step_s - best.step_s
    placed = replace(
        trial,
        stage=Stage.PLACE,
        state=TrialState.COMPLETE,
        predicted_s=best.step_s,
        numbers=numbers,
        placement=ranked.best.placement,
        details=best.to_json(),
        lowered_digest=compiled.lowered_digest,
    )
    if refusal is None:
        return placed
    return replace(
        placed,
        state=TrialState.REJECTED,
        stage=refusal.stage,
        predicted_s=None,
        rejection=refusal,
        numbers=numbers | dict(refusal.numbers),
    )
