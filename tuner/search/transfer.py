"""What a study takes over from earlier ones of its model: where to begin, how far to trust estimates, what to skip.

Nothing is taken on trust: a layout that won elsewhere is compiled here before others, an estimate is corrected by what
its kin turned out to be, and a proof needs every candidate as before.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tuner.experience import Experience
from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import Space
from tuner.search.prospects import Prospect

MOST_WINNERS = 2
"""Earlier winners that are tried before anything else."""

_LEAST_SLACK = 0.02
_SPREADS = 2.0
_TO_DEVIATIONS = 1.4826  # of a normal distribution, over the median of absolute deviations

Kind = tuple[object, ...]


class Transfer:
    """What earlier studies say about the candidates of this one."""

    def __init__(self, experiences: Sequence[Experience], space: Space, slice_name: str) -> None:
        self._tuned = {choice.name for choice in space.tuned}
        self._slice_name = slice_name
        self._experiences = experiences
        ratios: defaultdict[Kind, list[float]] = defaultdict(list)
        for each in experiences:
            if each.estimate_s:
                for kind in self._kinds(each.candidate.layout, each.slice_name):
                    ratios[kind].append(each.predicted_s / each.estimate_s)
        self._ratios: Mapping[Kind, list[float]] = ratios

    @property
    def slack(self) -> float | None:
        """How far above the best a corrected estimate may be to be worth a compile; None without experience.

        Twice the spread of predictions around estimates that were corrected by other studies.
        """
        off = [
            math.log(each.predicted_s / each.estimate_s / ratio)
            for each in self._experiences
            if each.estimate_s and (ratio := self._ratio(each, besides=each.study_id)) is not None
        ]
        if not off:
            return None
        return max(_LEAST_SLACK, _SPREADS * _TO_DEVIATIONS * statistics.median(map(abs, off)))

    def expected_s(self, prospect: Prospect) -> float:
        """Returns the estimate of a prospect times what predictions of its nearest kin were of their estimates."""
        for kind in self._kinds(prospect.candidate.layout, self._slice_name):
            if kind in self._ratios:
                return prospect.estimate_s * statistics.median(self._ratios[kind])
        return prospect.estimate_s

    def winners(self, prospects: Iterable[Prospect]) -> list[Candidate]:
        """Returns what won earlier studies, as candidates of this one, those of the same slice first.

        On another slice the sizes are others: there the prospect that splits the same axes and has the lowest expected
        step stands in. Kernel blocks are those of this shape, compiler flags those that won.
        """
        here = sorted(prospects, key=lambda p: (self.expected_s(p), p.candidate.digest))
        found: dict[str, Candidate] = {}
        for won in sorted(self._won(), key=lambda each: each.slice_name != self._slice_name):
            kind = self._kinds(won.candidate.layout, won.slice_name)[0 if won.slice_name == self._slice_name else 1]
            kin = next((p for p in here if kind in self._kinds(p.candidate.layout, self._slice_name)), None)
            if kin is not None and kin.candidate.placement is None:
                candidate = Candidate(layout=kin.candidate.layout, compiler_options=won.candidate.compiler_options)
                found.setdefault(candidate.digest, candidate)
        return list(found.values())[:MOST_WINNERS]

    def tuned(self, candidate: Candidate) -> bool:
        """Whether this candidate won a study on this slice in which its blocks or flags were varied."""
        mine = self._kinds(candidate.layout, self._slice_name)[0]
        for won in self._won():
            if won.slice_name != self._slice_name or won.candidate.compiler_options != candidate.compiler_options:
                continue
            if self._kinds(won.candidate.layout, won.slice_name)[0] == mine and any(
                other.study_id == won.study_id
                and other.candidate != won.candidate
                and self._kinds(other.candidate.layout, other.slice_name)[0] == mine
                for other in self._experiences
            ):
                return True
        return False

    def _won(self) -> list[Experience]:
        """Returns the best of each study, the newest study first."""
        best: dict[int, Experience] = {}
        for each in self._experiences:
            if each.study_id not in best or each.predicted_s < best[each.study_id].predicted_s:
                best[each.study_id] = each
        return list(best.values())

    def _ratio(self, experience: Experience, besides: int) -> float | None:
        """Returns the median ratio of the nearest kin of an experience in other studies."""
        others = [each for each in self._experiences if each.study_id != besides and each.estimate_s]
        for kind in self._kinds(experience.candidate.layout, experience.slice_name):
            kin = [
                each.predicted_s / each.estimate_s
                for each in others
                if each.estimate_s and kind in self._kinds(each.candidate.layout, each.slice_name)
            ]
            if kin:
                return statistics.median(kin)
        return None

    def _kinds(self, layout: Layout, slice_name: str) -> tuple[Kind, ...]:
        """Returns what a layout is alike with others in, the nearest first.

        The same sizes and options on the same slice; the same axes split, with the same options, anywhere; anything.
        """
        options = tuple((name, value) for name, value in layout.options if name not in self._tuned)
        split = tuple(sorted(name for name, size in layout.axes if size > 1))
        return (slice_name, layout.axes, options), (split, options), ()
