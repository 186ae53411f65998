"""The funnel: enumerate, screen, compile, place, until nothing that is left can win or the budget is spent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import optuna

from tuner.calibration.records import constants
from tuner.layouts.layout import Candidate
from tuner.leases import Lease
from tuner.network.cost import Degraded
from tuner.placements.placement import Placement
from tuner.plans.toolchain import Toolchain
from tuner.ports import Compiled, Compiler, Screener, Workload, WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.agenda import Agenda, Item
from tuner.search.cache import CachedCompiler, CachedScreener, Subject
from tuner.search.crew import MOST_VANISHED, TTL_S, Crew
from tuner.search.events import Listener, Stopped, TrialEnded, TrialStarted, silent
from tuner.search.ledger import Ledger
from tuner.search.measure import Measure, MeasuredOutcome, Predicted, wrong_candidates
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
from tuner.search.transfer import Transfer
from tuner.search.trials import UNNUMBERED, bounded, rejected, running, uncompiled
from tuner.slices.slice import Slice
from tuner.stores import Store, Trial, TrialState
from tuner.work import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    trial: Trial
    started: float
    future: Future[tuple[Compiled | Rejection, bool]]


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
        self._jobs = jobs
        self._clock = clock
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
        self._taken: set[str] = set()
        self._running: dict[int, Trial] = {}
        self._dismissed = False
        self._stale = 0

    def run(self) -> Outcome:
        """Runs the funnel. On KeyboardInterrupt, everything that was found is stored before the outcome returns."""
        agenda, interrupted = self._agenda, False
        with self._crew:
            try:
                self._begin()
                self._look_at_all()
                agenda.fill()
                self._compile_all()
            except KeyboardInterrupt:
                interrupted, agenda.stopped, agenda.proved = True, "it was told to stop", False
            self._close_run(ended=not interrupted and not self._dismissed)
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
                    self._retry(prospect)
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
        alone, busy = self._crew.alone, self._crew.busy()
        self._ledger.reconcile(
            # Between asking Optuna for a trial and writing it, only its worker knows that it is alive.
            lambda trial: not alone and (trial is None or self._crew.resource(trial.candidate) in busy)
        )
        self._ledger.refresh()

    def _close_run(self, *, ended: bool) -> None:
        """Stores what this run was. One that ended by itself speaks for the study, and closes it for workers."""
        proved = self._agenda.proved if ended else self._store.open_study(self._key).proved and self._dismissed
        if ended:
            self._store.close_task(self._study.id)
        self._store.close_run(self._study.id, proved=proved, spent_s=self._crew.kept_s)

    def _retry(self, prospect: Prospect) -> None:
        while self._crew.take(prospect.candidate) is None:
            self._crew.wait()
        try:
            self._ledger.refresh()
            if prospect.candidate.digest in self._ledger.trials:
                return
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
        finally:
            self._crew.give_back(prospect.candidate)

    def _look_at_all(self) -> None:
        candidates, refused = self._screen.enumerate()
        self._store.count_refusals(self._study.id, refused)
        self._ledger.refuse(self._screen.look(candidates))

    def _compile_all(self) -> None:
        jobs: deque[_Job] = deque()
        pool = ThreadPoolExecutor(max_workers=self._jobs)
        try:
            while self._catch_up():
                while len(jobs) < self._jobs and (trial := self._choose(len(jobs))) is not None:
                    future = pool.submit(self._compiler.compile, trial.candidate)
                    jobs.append(_Job(trial=trial, started=self._clock(), future=future))
                if jobs:
                    # Results are taken in the order of their start, so that a run can be repeated.
                    outcome, cached = jobs[0].future.result()
                    self._finish(jobs[0].trial, outcome, seconds=self._clock() - jobs[0].started, cached=cached)
                    self._crew.give_back(jobs.popleft().trial.candidate)
                elif self._others_are_at_it():
                    self._crew.wait()
                else:
                    break
        except BaseException:
            # A compile that runs is not waited for: whoever owns the compiler ends it.
            pool.shutdown(wait=False, cancel_futures=True)
            for trial in self._running.values():
                if self._ledger.is_open(trial.number):
                    self._ledger.end(replace(trial, state=TrialState.INTERRUPTED))
                self._crew.give_back(trial.candidate)
            raise
        pool.shutdown()

    def _catch_up(self) -> bool:
        """Takes in what other processes did meanwhile; returns False if one of them has closed the study."""
        self._taken.clear()
        for trial in self._ledger.refresh():
            self._agenda.drop(trial.candidate)
            self._agenda.note(trial)
        if self._agenda.waiting or self._ledger.elsewhere:
            busy = self._crew.busy()

            def free(candidate: Candidate) -> bool:
                return self._crew.resource(candidate) not in busy

            if self._ledger.elsewhere and self._crew.keeper:
                for trial in [t for t in self._ledger.elsewhere.values() if free(t.candidate)]:
                    self._ledger.give_up(trial)
            self._agenda.take_back(free)
        if self._joined and not self._crew.wanted:
            self._agenda.stopped = "another search has closed the study"
            self._dismissed = True
        return not self._dismissed

    def _others_are_at_it(self) -> bool:
        """Whether something that another process is at may still matter to this one."""
        at_it = self._agenda.waiting or bool(self._ledger.elsewhere)
        return at_it and not self._budget.out_of_time

    def _choose(self, compiling: int) -> Trial | None:
        """Starts and returns the next trial to compile; None if there is none, with the reason in the agenda."""
        while True:
            asked = self._ledger.enqueued()
            if asked is not None:
                number, candidate = asked
                prospect = self._judge(number, candidate)
                if prospect is None:
                    continue
                item, proposal = Item(prospect=prospect, forced=True), None
            else:
                chosen = self._agenda.next(compiling + len(self._ledger.elsewhere))
                if chosen is None:
                    return None
                proposal = None if chosen.forced else self._propose()
                item = chosen if proposal is None else Item(prospect=proposal.prospect)
                number = UNNUMBERED
            prospect = item.prospect
            lease = self._take(item, proposal)
            if lease is None:
                if number != UNNUMBERED:
                    self._ledger.end(replace(running(number, prospect, ""), state=TrialState.INTERRUPTED))
                continue
            if number == UNNUMBERED:
                number = self._ledger.open(prospect.candidate)
            if proposal is not None:
                self._proposed[number] = proposal.placement
            best = self._ledger.best
            pruned = self._ledger.hopeless(number, prospect.bound.step_s)
            self._agenda.drop(prospect.candidate)
            if pruned and not item.baseline and best is not None and best.predicted_s is not None:
                self._discard(replace(bounded(prospect, best.predicted_s), number=number))
                continue
            trial = running(number, prospect, item.baseline)
            self._running[number] = trial
            trial = self._ledger.start(trial)
            if lease.claims > MOST_VANISHED:
                self._discard(uncompiled(trial, _deadly(lease)))
                continue
            self._busy.add(trial.candidate.digest)
            self._listener(TrialStarted(trial=trial))
            return trial

    def _take(self, item: Item, proposal: Proposal | None) -> Lease | None:
        """Takes a candidate for this process; None if another one is at it or has done it, and then it is set aside."""
        candidate = item.prospect.candidate
        lease = self._crew.take(candidate)
        if lease is not None and proposal is None:
            # What is known now is all that there will be as long as this process holds the candidate.
            for trial in self._ledger.refresh():
                self._agenda.drop(trial.candidate)
                self._agenda.note(trial)
            if candidate.digest in self._ledger.trials:
                self._crew.give_back(candidate)
                self._agenda.drop(candidate)
                return None
        if lease is None and proposal is None:
            self._agenda.set_aside(item)
        elif lease is None:
            self._taken.add(candidate.digest)
        return lease

    def _discard(self, trial: Trial) -> None:
        """Ends a trial that does not go to the compiler."""
        self._proposed.pop(trial.number, None)
        self._agenda.note(self._ledger.end(trial))
        self._running.pop(trial.number, None)
        self._crew.give_back(trial.candidate)

    def _propose(self) -> Proposal | None:
        """Returns what the sampler proposes; None for best-first, and where another one has nothing new to compile."""
        if self._proposals is None or self._stale >= MOST_DRAWS:
            self._stale = 0
            return None
        proposal = self._proposals.draw(self._busy | self._taken)
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
        self._running.pop(trial.number, None)
        self._busy.discard(ended.candidate.digest)
        self._agenda.note(ended)
        if ended.state is TrialState.SUPERSEDED:
            prospect = self._screen.prospects[ended.candidate.digest]
            self._agenda.set_aside(Item(prospect=prospect, baseline=ended.baseline, forced=bool(ended.baseline)))
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


def _deadly(lease: Lease) -> Rejection:
    vanished = lease.claims - 1
    return Rejection(
        stage=Stage.COMPILE,
        reason=RejectReason.COMPILER_ABORT,
        detail=f"{vanished} workers vanished while they compiled it; it is not tried again",
        numbers={"vanished": vanished},
    )
