"""A person's own choice compiled for the slice and with the toolchain of a plan, to set it beside the plan."""

from __future__ import annotations

from typing import Any

from adapters.jax.pool import CompilePool
from adapters.models.registry import resolve
from adapters.search import required_toolchain
from tuner.errors import InvalidValue, UnknownName
from tuner.explain.choice import Choice
from tuner.explain.comparison import ordered
from tuner.layouts.layout import Candidate, Layout
from tuner.network.reach import is_limited
from tuner.plans.plan import Plan
from tuner.plans.workload import WorkloadKey
from tuner.ports import Compiled, Workload, WorkloadSpec
from tuner.rejections import Rejection
from tuner.search.cache import CachedCompiler, Subject
from tuner.search.trials import crowded_out
from tuner.stores import Store


def compile_choice(
    store: Store, plan: Plan, choice: Choice, *, where: str, workload: str = "", timeout_s: float = 600.0
) -> tuple[Candidate, Compiled | Rejection]:
    """Returns the candidate that a choice is, and what the compiler makes of it; from the store if it is there.

    What was not chosen is taken as a search takes it: default options, the kernel blocks and the flags that suit best.
    Nothing is promoted and no trial is made.

    Args:
        store: keeps the program.
        plan: says for what and with which toolchain.
        choice: what was chosen.
        where: the placement; the program depends on it on v5e slices of more than 16 chips.
        workload: ``package.module:attribute`` of a workload of one's own; empty for a preset.
        timeout_s: time for the compile.

    Raises InvalidValue if the toolchain or the workload is another than the plan's, UnknownName if there is no such
    workload, ToolchainMissing without jax and libtpu.
    """
    toolchain = required_toolchain()
    if toolchain.digest != plan.toolchain.digest:
        changes = "; ".join(plan.toolchain.fingerprint.differences(toolchain.fingerprint))
        raise InvalidValue(
            f"the choice is not in the plan's study, and compiling it now would compare two compilers ({changes}): "
            "tune with this toolchain first"
        )
    spec = WorkloadSpec(model=workload or plan.workload.model, parameters=parameters_of(plan.workload))
    try:
        built = resolve(spec)
    except UnknownName as error:
        if workload:
            raise
        raise UnknownName(
            f"the choice is not in the plan's study, and {plan.workload.model!r} is no preset that could be compiled "
            "for it: name the workload with --workload package.module:attribute"
        ) from error
    key = WorkloadKey.of(built.name, built.identity)
    if key.digest != plan.workload.digest:
        raise InvalidValue(f"{spec.model} is {key.name}, and not the {plan.workload.name} of the plan")
    candidate = _candidate(built, plan, choice, where)
    refusal = built.verdict(candidate.layout)
    if refusal is not None:
        return candidate, refusal
    subject = Subject(workload=key, source=built.source, spec=spec, slice=plan.slice, toolchain=toolchain)
    with CompilePool(workers=1, timeout_s=timeout_s) as pool:
        outcome, _ = CachedCompiler(pool, store, subject).compile(candidate)
    if isinstance(outcome, Rejection):
        return candidate, outcome
    return candidate, crowded_out(outcome, plan.slice, plan.constraints.reserve_hbm_bytes) or outcome


def _candidate(workload: Workload, plan: Plan, choice: Choice, where: str) -> Candidate:
    layout = Layout.of(dict(choice.axes), workload.space.defaults() | dict(choice.options))
    for tuned in workload.tuned(layout, plan.slice):
        if all(tuned.option(name) == value for name, value in choice.options.items()):
            layout = tuned
            break
    flags = dict(workload.space.initial_flags()) | dict(choice.flags)
    placement = None
    if is_limited(plan.slice):
        placement = ordered(where, plan.slice, layout, jax=plan.toolchain.jax_release)
    return Candidate(layout=layout, compiler_options=tuple(flags.items()), placement=placement)


def parameters_of(key: WorkloadKey) -> dict[str, Any]:
    """Returns what a preset is asked for to be the workload of a key."""
    parameters: dict[str, Any] = {"shape": key.shape} if key.shape else {}
    for part in filter(None, key.variant.split(",")):
        name, _, value = part.partition("=")
        if not value:
            parameters |= {"guidance": False} if name == "no-guidance" else {"dtype": name}
        else:
            parameters |= {name: int(value)}
    return parameters
