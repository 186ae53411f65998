"""A person's own choice, as text: ``cfg=2,ulysses=4,weights=replicated`` and where its mesh lies."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.errors import InvalidValue
from tuner.layouts.layout import Candidate, Layout, Option
from tuner.rejections import RejectReason
from tuner.stores import Trial

_RUNS = frozenset({RejectReason.BOUND, RejectReason.SLOWER, RejectReason.DUPLICATE})

FLAG_PREFIX = "xla_"
"""Names that begin so are compiler options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a person chose; everything that they did not name is open.

    Attributes:
        axes: size of every mesh axis, in mesh order; those not named are 1.
        options: of the workload, where named.
        flags: compiler options, where named.
    """

    axes: tuple[tuple[str, int], ...]
    options: Mapping[str, Option]
    flags: Mapping[str, str]

    def fits(self, candidate: Candidate) -> bool:
        """Returns whether a candidate is what was chosen."""
        options, flags = dict(candidate.layout.options), dict(candidate.compiler_options)
        return (
            candidate.layout.axes == self.axes
            and all(options.get(name) == value for name, value in self.options.items())
            and all(flags.get(name) == value for name, value in self.flags.items())
        )

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """Returns the fastest trial that is what was chosen; else one that does not run; None if there is none.

        One that was rejected because it cannot win runs, so it is neither.
        """
        same = [trial for trial in trials if self.fits(trial.candidate)]
        placed = [trial for trial in same if trial.predicted_s is not None]
        if placed:
            return min(placed, key=lambda trial: (trial.predicted_s or 0.0, trial.number))
        return next((t for t in same if t.rejection is not None and t.rejection.reason not in _RUNS), None)


def parse_choice(text: str, like: Layout) -> Choice:
    """Reads a choice; axes and options are those of a layout of the same workload.

    Raises InvalidValue naming what is unknown and what is legal, and if the sizes do not multiply to its devices.
    """
    sizes = {name: 1 for name, _ in like.axes}
    known: dict[str, Option] = dict(like.options)
    options: dict[str, Option] = {}
    flags: dict[str, str] = {}
    for name, value in _pairs(text):
        if name in sizes:
            if not value.isdecimal() or int(value) < 1:
                raise InvalidValue(f"{name}={value}: legal is a whole number from 1")
            sizes[name] = int(value)
        elif name in known:
            options[name] = int(value) if isinstance(known[name], int) and value.isdecimal() else value
        elif name.startswith(FLAG_PREFIX):
            flags[name] = value
        else:
            legal = [*sizes, *known]
            near = difflib.get_close_matches(name, legal, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InvalidValue(
                f"no axis or option {name!r}; {hint}there are {', '.join(legal)} and {FLAG_PREFIX}... flags"
            )
    if math.prod(sizes.values()) != like.devices:
        product = " x ".join(str(size) for size in sizes.values() if size > 1) or "1"
        raise InvalidValue(
            f"{product} is not the {like.devices} devices of the slice; legal: sizes that multiply to it"
        )
    return Choice(axes=tuple(sizes.items()), options=options, flags=flags)


def _pairs(text: str) -> list[tuple[str, str]]:
    """Splits at commas; a part without ``=`` belongs to the value before it, as in ``blocks=512,512,512``."""
    pairs: list[tuple[str, str]] = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            pairs.append((name.strip(), value.strip()))
        elif pairs:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{part.strip()}")
        else:
            raise InvalidValue(f"{text!r} is not like cfg=2,ulysses=4")
    return pairs
