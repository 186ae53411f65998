"""From `--measure auto|never|require` to a measure stage on the attached devices, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import optuna

from adapters.jax.child import chips_attached
from adapters.jax.hosts import Hosts
from adapters.jax.runner import DeviceRunner
from tuner.errors import TunerError
from tuner.ports import Runner
from tuner.search.events import Listener, TrialMeasured, silent
from tuner.search.measure import Measure, MeasuredOutcome, MeasureStage, Measuring, Predicted
from tuner.search.measured import Timed
from tuner.slices.slice import Slice
from tuner.stores import Store


class When(StrEnum):
    """Whether a search measures."""

    AUTO = "auto"
    NEVER = "never"
    REQUIRE = "require"


class NotMeasured(TunerError):
    """Devices were required, and nothing was measured on any; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """How a search measures.

    Attributes:
        when: ``auto`` measures if the slice's devices are attached to this host, ``require`` fails if they are not.
        timeout_s: for one candidate.
        trace: directory for profiler traces.
        hosts: this process as the first of several hosts.
        runner: instead of the attached devices, for tests.
        budget_s: for which devices may be held, as `MeasureStage` says; None for no limit.
    """

    when: When = When.NEVER
    timeout_s: float = 600.0
    trace: Path | None = None
    hosts: Hosts | None = None
    runner: Runner | None = None
    budget_s: float | None = None


NO_MEASUREMENT = Measurement()


@contextmanager
def measuring(
    how: Measurement,
    slice_: Slice,
    store: Store,
    optuna_storage: Callable[[], optuna.storages.BaseStorage],
    *,
    listener: Listener = silent,
    told: Callable[[str], None] = lambda line: None,
    before: Callable[[], None] = lambda: None,
) -> Iterator[Measure | None]:
    """Gives what a search measures with; None if it shall not, or if it cannot and need not.

    Args:
        how: what was asked for.
        slice_: what the devices must be.
        store: ours.
        optuna_storage: opens Optuna's half of the same database.
        listener: is told of each candidate.
        told: is told why nothing was measured where that is no error.
        before: lets go of whoever holds the devices, such as compilers.

    Raises NotMeasured in the call if devices were required and there are none.
    """
    require = how.when is When.REQUIRE
    missing = "" if how.runner else missing_devices(slice_)
    if how.when is When.NEVER or (missing and not require):
        yield None
        return
    if missing:
        raise NotMeasured(missing)
    with DeviceRunner(slice_, timeout_s=how.timeout_s, trace=how.trace, hosts=how.hosts, before=before) as attached:

        def on_timed(timed: Timed) -> None:
            listener(TrialMeasured(trial=timed.trial, role=timed.entry.role.value))

        stage = MeasureStage(
            runner=how.runner or attached,
            store=store,
            optuna_storage=optuna_storage(),
            on_timed=on_timed,
            budget_s=how.budget_s,
        )

        def measure(predicted: Predicted) -> MeasuredOutcome | None:
            try:
                outcome = stage.run(predicted)
            except (Measuring, ValueError) as error:
                # Other devices than the slice's are a ValueError too (WrongDevices), as JAX is not loaded here.
                if require or not isinstance(error, TunerError):
                    raise
                told(f"nothing was measured: {error}")
                return None
            if require and outcome.best is None:
                why = "; ".join(t.trial.rejection.detail for t in outcome.timed if t.trial.rejection is not None)
                raise NotMeasured(f"no candidate could be measured on {slice_.name}: {why}")
            return outcome

        yield measure


def missing_devices(slice_: Slice) -> str:
    """Returns why this host cannot measure on a slice, as far as it can be said without touching devices."""
    if not slice_.generation.has_links or chips_attached():
        return ""
    return f"no TPU is attached to this host, so nothing can be measured on {slice_.name}"
