"""Fits constants to observations, and says whether they are better than those that it started from.

Every observation is predicted by the model that ranks placements, so whole steps and single collectives speak about the
same constants. What is minimised is the logarithm of predicted over observed in units of its expected noise, with a
loss that grows linearly for outliers (soft L1; Huber's idea, smooth). Constants are fitted on a logarithmic scale, held
weakly to where they started: a constant that the rows say little about stays there.

Whether the fit is used is decided by rows that it did not see: the rows are dealt into folds, each fold is predicted
by a fit to the others, and the errors are compared with those of the starting constants. If the mean error over the
kinds of rows does not fall, or one kind gets worse, the machine differs from the model in a way that these constants
cannot express, and the fit is kept as history only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from tuner.calibration.calibration import Calibration
from tuner.calibration.dials import Dial, dials
from tuner.calibration.fitted import Constant, Fit, HeldBack
from tuner.calibration.observation import Observation
from tuner.calibration.outlook import Outlook
from tuner.errors import InvalidValue

Floats = NDArray[np.float64]

NOISE = 0.03
"""What a repeated timing of one program on TPU varies by, as a share; single rows add their own spread."""

OUTLIER = 2.0
"""Residuals beyond so many times the noise weigh less and less."""

PRIOR = 1.0
"""How far a constant may be from where it started, as a standard deviation of its natural logarithm."""

LOOSE = 0.25
"""A constant with a larger standard error (as a share of itself) is not told by the rows and stays where it was."""

FOLDS = 4
"""Parts that the rows are dealt into; each is held back once."""

LEAST_ROWS = 8
"""Fewer rows are no ground for a fit."""

GAIN = 0.05
"""The mean error of rows that were held back must fall by this share of itself."""

WORSE = 0.01
"""No kind of rows may get worse by more than this (of the observed time) and a tenth of its error."""


def fit(observations: Sequence[Observation], start: Calibration, *, now: datetime) -> Fit:
    """Fits the constants of one generation and toolchain.

    Args:
        observations: rows of `start`'s generation, all under one toolchain.
        start: the record to begin with.
        now: the time that the fit is stamped with.

    Raises InvalidValue for rows of another generation or of several toolchains, or without any.
    """
    _check(observations, start)
    rows = [row for row in map(Outlook, observations) if row.possible(start)]
    folds = _deal(rows)
    if len(rows) < LEAST_ROWS or len(set(folds)) < 2:
        return _declined(observations, start, now, f"{len(rows)} rows that the model can predict; {LEAST_ROWS} are few")
    turned = dials(start, [row.program for row in rows])
    fitted, uncertainty = _solve(rows, turned, start, start)
    before, after = [], []
    for fold in sorted(set(folds)):
        unseen = [row for row, at in zip(rows, folds, strict=True) if at == fold]
        seen = [row for row, at in zip(rows, folds, strict=True) if at != fold]
        without, _ = _solve(seen, turned, start, fitted)  # begins nearby, to end sooner
        before += [(row, row.error(start)) for row in unseen]
        after += [(row, row.error(without)) for row in unseen]
    held_back = _by_kind(before, after)
    used, reason = _verdict(held_back)
    return Fit(
        generation=start.generation,
        toolchain=observations[0].toolchain,
        start=start,
        calibration=replace(fitted, relative_error=_spread(after)),
        constants=tuple(
            Constant(name=dial.name, before=dial.read(start), after=dial.read(fitted), uncertainty=uncertainty[dial])
            for dial in turned
            if dial in uncertainty
        ),
        held_back=held_back,
        rows=len(rows),
        used=used,
        reason=reason,
        fitted_at=now,
    )


def _check(observations: Sequence[Observation], start: Calibration) -> None:
    if not observations:
        raise InvalidValue(f"no observations to fit {start.generation} to")
    for observation in observations:
        if observation.slice.generation_name != start.generation:
            raise InvalidValue(
                f"{observation.name!r} is of {observation.slice.name}, the constants of {start.generation}"
            )
    toolchains = sorted({str(observation.toolchain) for observation in observations})
    if len(toolchains) > 1:
        raise InvalidValue(f"observations under several toolchains: {'; '.join(toolchains)}; fit one at a time")


def _deal(rows: Sequence[Outlook]) -> list[int]:
    """Returns the fold of each row. Repeats of one program stay together, and sizes of one kind are spread."""
    groups = sorted({(row.observation.what, row.key) for row in rows})
    fold = {group: number % FOLDS for number, group in enumerate(groups)}
    return [fold[row.observation.what, row.key] for row in rows]


def _solve(
    rows: Sequence[Outlook], turned: Sequence[Dial], start: Calibration, near: Calibration
) -> tuple[Calibration, dict[Dial, float]]:
    """Returns the fitted record and the relative standard error of what the rows tell, in two rounds.

    The search begins at `near`. The second round leaves out what the first one could not tell.
    """
    told = list(turned)
    for _ in range(2):
        if not told:
            return start, {}
        fitted, uncertainty = _round(rows, told, start, near)
        certain = [dial for dial in told if uncertainty[dial] <= LOOSE]
        if certain == told:
            break
        told = certain
    return fitted, uncertainty


def _round(
    rows: Sequence[Outlook], told: Sequence[Dial], start: Calibration, near: Calibration
) -> tuple[Calibration, dict[Dial, float]]:
    low, high = np.log([dial.low for dial in told]), np.log([dial.high for dial in told])
    origin = np.clip(np.log([dial.read(start) for dial in told]), low, high)
    noise = np.array([math.hypot(NOISE, row.observation.spread) for row in rows])
    touched = [[number for number, row in enumerate(rows) if row.turned_by(dial)] for dial in told]

    def record(x: Floats) -> Calibration:
        out = start
        for dial, value in zip(told, np.exp(x), strict=True):
            out = dial.write(out, float(min(max(value, dial.low), dial.high)))
        return out

    def residuals(x: Floats) -> Floats:
        constants = record(x)
        found = np.array([row.log_ratio(constants) for row in rows])
        return np.concatenate([found / noise, (x - origin) / PRIOR])

    def slopes(x: Floats) -> Floats:
        """Only rows that a constant touches are predicted again; kinks of the model make no difference to a step."""
        here = residuals(x)
        out = np.vstack([np.zeros((len(rows), len(told))), np.eye(len(told)) / PRIOR])
        for column, numbers in enumerate(touched):
            step = -1e-4 if x[column] + 1e-4 > high[column] else 1e-4
            moved = x.copy()
            moved[column] += step
            constants = record(moved)
            for number in numbers:
                out[number, column] = (rows[number].log_ratio(constants) / noise[number] - here[number]) / step
        return out

    margin = 1e-6
    inside = np.clip(np.log([dial.read(near) for dial in told]), low + margin, high - margin)
    found = least_squares(
        residuals, inside, slopes, bounds=(low, high), loss="soft_l1", f_scale=OUTLIER, xtol=1e-5, ftol=1e-5
    )
    errors = _standard_errors(slopes(found.x), residuals(found.x)[: len(rows)])
    return record(found.x), dict(zip(told, errors.tolist(), strict=True))


def _standard_errors(slopes: Floats, residuals: Floats) -> Floats:
    """Returns the standard error of each constant's logarithm.

    The noise is scaled up where the rows scatter more than expected: 1.4826 turns a median absolute deviation into a
    standard deviation.
    """
    scatter = max(1.0, 1.4826 * float(np.median(np.abs(residuals))))
    covariance = np.linalg.inv(slopes.T @ slopes)
    return np.asarray(scatter * np.sqrt(np.diag(covariance)))


def _by_kind(before: Sequence[tuple[Outlook, float]], after: Sequence[tuple[Outlook, float]]) -> tuple[HeldBack, ...]:
    kinds = sorted({row.observation.what for row, _ in before})
    errors = [
        [[abs(error) for row, error in found if row.observation.what == kind] for found in (before, after)]
        for kind in kinds
    ]
    return tuple(
        HeldBack(what=kind, rows=len(old), before=float(np.mean(old)), after=float(np.mean(new)))
        for kind, (old, new) in zip(kinds, errors, strict=True)
    )


def _verdict(held_back: Sequence[HeldBack]) -> tuple[bool, str]:
    before, after = (float(np.mean([getattr(each, when) for each in held_back])) for when in ("before", "after"))
    figures = f"from {before:.1%} to {after:.1%}"
    for each in held_back:
        if each.after > each.before + WORSE + each.before / 10:
            return False, f"rows held back of {each.what} get worse, from {each.before:.1%} to {each.after:.1%}"
    if after > before * (1 - GAIN):
        return False, f"the mean error of rows held back does not fall ({figures})"
    return True, f"the mean error of rows held back falls {figures}"


def _spread(errors: Sequence[tuple[Outlook, float]]) -> float:
    """Returns the error that two thirds of the predictions stay below, of whole steps if there are enough of them."""
    steps = [abs(error) for row, error in errors if row.observation.what == "step"]
    found = steps if len(steps) >= LEAST_ROWS else [abs(error) for _, error in errors]
    return float(min(1.0, max(0.02, np.quantile(found, 2 / 3))))


def _declined(observations: Sequence[Observation], start: Calibration, now: datetime, reason: str) -> Fit:
    return Fit(
        generation=start.generation,
        toolchain=observations[0].toolchain,
        start=start,
        calibration=start,
        constants=(),
        held_back=(),
        rows=len(observations),
        used=False,
        reason=reason,
        fitted_at=now,
    )
