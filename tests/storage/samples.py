"""Values to store: small, but with every part in use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from tuner.layouts.layout import Candidate, Layout
from tuner.placements.placement import Placement
from tuner.plans.plan import Baseline, Constraints, Evidence, Plan
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import ArgumentSharding, Compiled, Screened
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Loop, Memory, Program
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.slice import Slice
from tuner.stores import ContentKey, StudyKey, Trial, TrialState

MODEL = "wan2.1-t2v-1.3b"
SHAPE = "832x480x81"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOON_ELSEWHERE = NOON.astimezone(timezone(timedelta(hours=9)))
OLD = Toolchain(jax="0.10.2", jaxlib="0.10.2", libtpu="0.0.42.1")
NEW = Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1", flags=(("XLA_FLAGS", "--xla_a=1"),))
TOO_BIG = Rejection(
    stage=Stage.COMPILE,
    reason=RejectReason.HBM,
    detail="needs 20 GiB, has 15.75 GiB",
    numbers={"needed_bytes": 2.0e10, "available_bytes": 1.7e10},
)


def workload(*, shape: str = SHAPE, variant: str = "", revision: str = "r1", model: str = MODEL) -> WorkloadKey:
    return WorkloadKey(model=model, shape=shape, variant=variant, identity=(("revision", revision), ("dtype", "bf16")))


def grid(*shape: int, wrap: tuple[bool, ...] | None = None) -> Slice:
    return Slice(generation_name="v5e", shape=shape, wrap=wrap or (False,) * len(shape))


def candidate(devices: int = 8, **options: str | int) -> Candidate:
    layout = Layout.of({"cfg": 2, "ulysses": devices // 2}, {"weights": "replicated"} | options)
    return Candidate(layout=layout, compiler_options=(("xla_tpu_enable_x", "true"),))


def study_key(**changes: Any) -> StudyKey:
    return StudyKey(**{"workload": workload(), "slice": grid(2, 4), "toolchain": NEW, "space_revision": "s1"} | changes)


def trial(number: int = 0, **changes: Any) -> Trial:
    values: dict[str, Any] = {
        "number": number,
        "candidate": candidate(block=number),
        "state": TrialState.COMPLETE,
        "stage": Stage.PLACE,
        "baseline": "A",
        "bound_s": 0.1,
        "estimate_s": 0.2,
        "predicted_s": 0.3 + number,
        "numbers": {"argument_bytes": 1.5e9, "compute_s": 0.25},
        "placement": Placement(devices=(1, 0, 2, 3, 7, 6, 5, 4), description="cfg: the two halves"),
        "details": {"timeline": [{"name": "loop", "seconds": 0.2}], "axes": {"ulysses": 0.05}},
        "lowered_digest": "ab" * 32,
        "host": "worker-1",
        "started_at": NOON,
        "finished_at": NOON + timedelta(seconds=13, microseconds=250),
    }
    return Trial(**values | changes)


def program(cycles: int = 7) -> Program:
    body = (
        Compute(name="fusion.1", kind=ComputeKind.MATMUL, flops=1e12, bytes=1 << 20, cycles=cycles),
        Collective(
            name="all-to-all.1",
            kind=CollectiveKind.ALL_TO_ALL,
            operand_bytes=1 << 20,
            result_bytes=1 << 20,
            groups=((0, 1, 2, 3), (4, 5, 6, 7)),
        ),
    )
    memory = Memory(argument_bytes=1 << 30, output_bytes=1 << 20, temp_bytes=1 << 29)
    return Program(devices=8, schedule=(Loop(name="while", trips=30, body=body),), memory=memory)


def screened(cycles: int = 7) -> Screened:
    return Screened(program=program(cycles), least_bytes=1 << 31, digest="cd" * 32)


def arguments() -> tuple[ArgumentSharding, ...]:
    return (
        ArgumentSharding(path="params/kernel", shape=(1536, 1536), dtype="bfloat16", spec=((), ("ulysses", "cfg"))),
        ArgumentSharding(path="t", shape=(), dtype="float32", spec=()),
    )


def compiled(cycles: int = 7, lowered_digest: str = "ab" * 32) -> Compiled:
    return Compiled(program=program(cycles), lowered_digest=lowered_digest, arguments=arguments(), compile_s=12.5)


def content_key(candidate_digest: str = "c1", **changes: Any) -> ContentKey:
    values: dict[str, Any] = {
        "workload_digest": "w1",
        "slice_name": "v5e-16x16",
        "wrap": (True, True),
        "toolchain_digest": "t1",
        "candidate_digest": candidate_digest,
    }
    return ContentKey(**values | changes)


def plan(step_s: float = 1.25, **changes: Any) -> Plan:
    slice_ = changes.pop("slice", grid(2, 4))
    devices = slice_.num_devices
    values: dict[str, Any] = {
        "workload": workload(),
        "slice": slice_,
        "toolchain": NEW,
        "constraints": Constraints(),
        "candidate": candidate(devices),
        "placement": Placement(devices=tuple(reversed(range(devices))), description="turned"),
        "arguments": arguments(),
        "evidence": Evidence.PREDICTED,
        "step_s": step_s,
        "memory_bytes": 9 << 30,
        "details": {"compute_s": 1.0},
        "baselines": (
            Baseline(name="A", layout="cfg=2 context=4", step_s=1.5, best_placement_step_s=1.4),
            Baseline(name="B", layout="ulysses=8", step_s=None, reason="does not fit"),
        ),
        "proved": True,
        "study": "a study",
        "trial": 3,
        "created_at": NOON_ELSEWHERE,
    }
    return Plan(**values | changes)
