"""What a search tries next: baselines, layouts by estimate, blocks and flags of the best; and when it stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from tuner.layouts.layout import Candidate
from tuner.ports import Workload
from tuner.search.ledger import Ledger
from tuner.search.parameters import Parameters
from tuner.search.prospects import Prospect, Queue
from tuner.search.screen import ScreenStage
from tuner.search.settings import Settings
from tuner.search.stopping import Budget, unimproved, unpromising
from tuner.search.transfer import Transfer
from tuner.search.trials import bounded
from tuner.slices.slice import Slice
from tuner.stores import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A prospect to try: the name of the baseline if it is one, and whether a sampler has no say in it."""

    prospect: Prospect
    baseline: str = ""
    forced: bool = False


class Agenda:
    """Orders what is left to try.

    Attributes:
        baselines: digest of each baseline's candidate, by name.
        missing: why a baseline does not run, by name.
        stopped: why `next` returned None.
        proved: True if nothing that is left could win.
        exhausted: True if `next` returned None because the budget is spent.
    """

    def __init__(
        self,
        *,
        workload: Workload,
        slice_: Slice,
        screen: ScreenStage,
        ledger: Ledger,
        parameters: Parameters,
        settings: Settings,
        budget: Budget,
        transfer: Transfer,
    ) -> None:
        self._workload = workload
        self._slice = slice_
        self._screen = screen
        self._ledger = ledger
        self._parameters = parameters
        self._settings = settings
        self._budget = budget
        self._transfer = transfer
        self._queue = Queue(())
        self._forced: deque[Item] = deque()
        self._variants: deque[Prospect] = deque()
        self._tuned: Candidate | None = None
        self._cut: Trial | None = None
        self._aside: dict[str, Item] = {}
        self.baselines: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.stopped = ""
        self.proved = False
        self.exhausted = False

    def fill(self) -> None:
        """Takes in what passed the screen: baselines first (A as declared, B the fewest received bytes), then what won
        earlier studies of the model."""
        prospects = self._screen.prospects
        self._queue = Queue(
            (p for digest, p in prospects.items() if digest not in self._ledger.trials), self._transfer.expected_s
        )
        for name, layout in self._workload.baselines(self._slice).items():
            refusal = self._workload.verdict(layout)
            if refusal is not None:
                self.missing[name] = refusal.detail
            else:
                self._force(name, self._screen.routes.in_default_order(Candidate(layout=layout)))
        fewest = min(
            prospects.values(),
            key=lambda p: (p.screened.program.received_bytes, p.estimate_s, p.candidate.digest),
            default=None,
        )
        if fewest is not None:
            candidate = self._screen.routes.in_default_order(fewest.candidate)
            if candidate.digest not in prospects:
                self._ledger.refuse(self._screen.look([candidate]))
            self._force("B", candidate)
        for candidate in self._transfer.winners(list(prospects.values())):
            if candidate.digest not in prospects:
                self._ledger.refuse(self._screen.look([candidate]))
            known = candidate.digest in self._ledger.trials or candidate.digest not in prospects
            if not known and all(item.prospect.candidate != candidate for item in self._forced):
                self._forced.append(Item(prospect=prospects[candidate.digest], forced=True))

    def next(self, compiling: int) -> Item | None:
        """Returns what to try while `compiling` candidates are at the compiler; None to stop, saying why in `stopped`.

        Prospects that the best prediction shows to be hopeless leave as rejected trials on the way.
        """
        self.stopped, self.proved, self.exhausted = "", False, False
        if self._forced:
            return self._forced.popleft()
        best = self._ledger.best
        if best is not None and best.predicted_s is not None and best is not self._cut:
            self._cut, best_s = best, best.predicted_s
            cut_s = self._ledger.cut_s  # the pruner's word, which changes with the best alone
            self._ledger.refuse([bounded(prospect, best_s) for prospect in self._queue.hopeless(cut_s)])
        spent = self._budget.exhausted(self._ledger.compiled + compiling)
        if spent and any(not trial.baseline for trial in self._ledger.completed):
            self.stopped, self.exhausted = spent, True
            return None
        if best is not None and unimproved(self._ledger) >= self._settings.tune_after:
            self._line_up_variants(best)
        head = self._queue.head
        if self._variants:
            return Item(prospect=self._variants.popleft(), forced=True)
        if head is None:
            self.stopped, self.proved = "every layout was tried or shown to be slower", self._sound
        elif reason := unpromising(head, self._ledger, self._settings, self._transfer, len(self._queue)):
            self.stopped = reason
        else:
            return Item(prospect=head)
        if compiling or best is None:
            return None
        self._line_up_variants(best)
        return Item(prospect=self._variants.popleft(), forced=True) if self._variants else None

    def drop(self, candidate: Candidate) -> None:
        """Takes a candidate off the agenda."""
        self._queue.drop(candidate.digest)

    def note(self, trial: Trial) -> None:
        """Notes the end of a trial: a baseline that was rejected is missing."""
        if trial.baseline and trial.rejection is not None:
            self.missing[trial.baseline] = trial.rejection.detail

    @property
    def waiting(self) -> bool:
        """Whether something was set aside."""
        return bool(self._aside)

    def set_aside(self, item: Item) -> None:
        """Takes off what another worker is at."""
        digest = item.prospect.candidate.digest
        self._queue.drop(digest)
        self._aside[digest] = item

    def take_back(self, free: Callable[[Candidate], bool]) -> None:
        """Puts back what was set aside and is free again without a result; what has one is gone."""
        for digest, item in list(self._aside.items()):
            if digest in self._ledger.trials:
                del self._aside[digest]
            elif free(item.prospect.candidate):
                del self._aside[digest]
                if item.forced:
                    self._forced.append(item)
                else:
                    self._queue.add(item.prospect)

    def _force(self, name: str, candidate: Candidate) -> None:
        self.baselines[name] = candidate.digest
        known = self._ledger.trials.get(candidate.digest)
        waiting = any(item.prospect.candidate == candidate for item in self._forced)
        if known is not None and known.rejection is not None:
            self.missing[name] = known.rejection.detail
        elif known is None and not waiting:
            self._forced.append(Item(prospect=self._screen.prospects[candidate.digest], baseline=name, forced=True))

    @property
    def _sound(self) -> bool:
        """True if no bound was found above its prediction and no class of placements was left out.

        Only then does a search prove anything.
        """
        violated = any("bound_violation_s" in trial.numbers for trial in self._ledger.completed)
        return (
            bool(self._ledger.completed)
            and not violated
            and not self._screen.routes.left_out
            and self._ledger.exhaustive
        )

    def _line_up_variants(self, best: Trial) -> None:
        """Lines up other kernel blocks and compiler flags for the best layout, each one step away from the best.

        When one of them becomes the best, its neighbours follow: a coordinate descent that ends because the choices do.
        """
        settled = self._settings.slack is not None and self._transfer.tuned(best.candidate)
        if self._tuned == best.candidate or settled:
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
