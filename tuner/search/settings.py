"""What a caller may ask of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from tuner.errors import InvalidValue
from tuner.plans.plan import Constraints


class SamplerName(StrEnum):
    """Who proposes the next candidate. All drive the same funnel through Optuna's ask and tell."""

    BEST_FIRST = "best-first"
    TPE = "tpe"
    RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Budget and behaviour of one search.

    Attributes:
        budget_s: no compile starts that would likely end after this many seconds; None for no limit. The baselines and
            one other candidate are always tried.
        max_trials: candidates that may be compiled, baselines included; None for no limit.
        patience: compiles in a row that may fail to improve the best by `margin` before the search stops without a
            proof; None to go on to the proof.
        tune_after: compiles in a row without a better layout after which the best one's kernel blocks and compiler
            flags are tried, before further layouts.
        slack: how far above the best prediction an estimate may be (as a share) for its candidate to be worth a compile
            while there is no proof; None to go on to the proof.
        margin: relative gain that counts as better, here and when a plan replaces the active one.
        seed: makes the random parts repeatable.
        sampler: who proposes.
        constraints: objective, memory to keep free, and links that are slow or missing.
        variants: how many choices of kernel blocks are tried on the best layout, besides every compiler flag.
    """

    budget_s: float | None = 100.0
    max_trials: int | None = None
    patience: int | None = 6
    tune_after: int = 2
    slack: float | None = 0.15
    margin: float = 0.01
    seed: int = 0
    sampler: SamplerName = SamplerName.BEST_FIRST
    constraints: Constraints = Constraints()
    variants: int = 3

    def __post_init__(self) -> None:
        if self.budget_s is not None and self.budget_s <= 0:
            raise InvalidValue(f"budget of {self.budget_s} s; more than 0 is legal")
        if self.max_trials is not None and self.max_trials < 1:
            raise InvalidValue(f"{self.max_trials} trials; 1 or more are legal")
        if not 0 <= self.margin < 1:
            raise InvalidValue(f"margin of {self.margin}; 0 up to 1 is legal")

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        return document | {"sampler": self.sampler.value, "constraints": self.constraints.to_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Settings:
        """Reads what `to_json` wrote. What a newer version added is left out."""
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in document.items() if name in known}
        return cls(
            **values | {"sampler": SamplerName(values["sampler"]), "constraints": Constraints(**values["constraints"])}
        )
