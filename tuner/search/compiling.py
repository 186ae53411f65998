"""The compile stage of one process: takes candidates, keeps compiles going, places what they make, shares with others.

A result is stored before its candidate is given free, and what another process has stored is looked for after a
candidate is taken, so that no candidate is tried twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from tuner.layouts.layout import Candidate
from tuner.leases import Lease
from tuner.placements.placement import Placement
from tuner.ports import Compiled, Workload
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.agenda import Agenda, Item
from tuner.search.cache import CachedCompiler
from tuner.search.crew import MOST_VANISHED, Crew
from tuner.search.events import Listener, TrialEnded, TrialStarted
from tuner.search.ledger import Ledger
from tuner.search.placing import PlaceStage
from tuner.search.proposals import MOST_DRAWS, Proposal, Proposals
from tuner.search.prospects import Prospect
from tuner.search.screen import ScreenStage
from tuner.search.stopping import Budget
from tuner.search.trials import UNNUMBERED, bounded, rejected, running, uncompiled
from tuner.slices.slice import Slice
from tuner.stores import Trial, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    trial: Trial
    started: float
    future: Future[tuple[Compiled | Rejection, bool]]


class CompileStage:
    """Compiles and places, `jobs` candidates at once.

    Attributes:
        dismissed: whether it ended because another process has closed the study that this one joined.
    """

    def __init__(
        self,
        *,
        workload: Workload,
        slice_: Slice,
        screen: ScreenStage,
        ledger: Ledger,
        agenda: Agenda,
        budget: Budget,
        crew: Crew,
        compiler: CachedCompiler,
        place: PlaceStage,
        proposals: Proposals | None,
        listener: Listener,
        jobs: int,
        joined: bool,
        clock: Callable[[], float],
    ) -> None:
        self._workload = workload
        self._slice = slice_
        self._screen = screen
        self._ledger = ledger
        self._agenda = agenda
        self._budget = budget
        self._crew = crew
        self._compiler = compiler
        self._place = place
        self._proposals = proposals
        self._listener = listener
        self._jobs = jobs
        self._joined = joined
        self._clock = clock
        self._proposed: dict[int, Placement] = {}
        self._busy: set[str] = set()
        self._taken: set[str] = set()
        self._held: set[str] = set()
        self._running: dict[int, Trial] = {}
        self._stale = 0
        self.dismissed = False

    def run(self) -> None:
        """Compiles and places what the agenda says, until it says no more and nobody else is at what may matter."""
        jobs: deque[_Job] = deque()
        pool = ThreadPoolExecutor(max_workers=self._jobs)
        try:
            while self._catch_up():
                while len(jobs) < self._jobs and (trial := self._choose(len(jobs))) is not None:
                    started = self._clock()
                    future = pool.submit(self._compiler.compile, trial.candidate)
                    jobs.append(_Job(trial=trial, started=started, future=future))
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

    def one(self, prospect: Prospect) -> None:
        """Compiles and places one candidate, unless another process does meanwhile."""
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

    def _catch_up(self) -> bool:
        """Takes in what other processes did meanwhile; returns False if one of them has closed the study."""
        self._taken.clear()
        self._held = set()
        for trial in self._ledger.refresh():
            self._agenda.drop(trial.candidate)
            self._agenda.note(trial)
        if self._agenda.waiting or self._ledger.elsewhere:
            self._held = busy = self._crew.busy()

            def free(candidate: Candidate) -> bool:
                return self._crew.resource(candidate) not in busy

            if self._ledger.elsewhere and self._crew.keeper:
                for trial in [t for t in self._ledger.elsewhere.values() if free(t.candidate)]:
                    self._ledger.give_up(trial)
            self._agenda.take_back(free)
        if self._joined and not self._crew.wanted:
            self._agenda.stopped = "another search has closed the study"
            self.dismissed = True
        return not self.dismissed

    def _others_are_at_it(self) -> bool:
        """Whether something that another process is at may still matter to this one."""
        at_it = self._agenda.waiting or bool(self._ledger.elsewhere)
        return at_it and not self._budget.out_of_time

    def _choose(self, compiling: int) -> Trial | None:
        """Starts and returns the next trial to compile; None if there is none, with the reason in the agenda."""
        looked = False
        while True:
            # Optuna is asked once for each trial, not again for each candidate that another process is at.
            asked = None if looked else self._ledger.enqueued()
            looked = asked is None
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
        resource = self._crew.resource(candidate)
        lease = None if resource in self._held else self._crew.take(candidate)
        if lease is None and resource not in self._held:
            self._held = self._crew.busy()  # where one is held, the next ones may be too
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


def _deadly(lease: Lease) -> Rejection:
    vanished = lease.claims - 1
    return Rejection(
        stage=Stage.COMPILE,
        reason=RejectReason.COMPILER_ABORT,
        detail=f"{vanished} workers vanished while they compiled it; it is not tried again",
        numbers={"vanished": vanished},
    )
