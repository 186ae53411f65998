"""Makes a database with as much in it as years of nights leave: for figures of lookups and of the dashboard.

    python benchmarks/big_store.py sqlite:///big.db [--plans 100000] [--trials 1000000] [--study 20000]

A database that is full already is left as it is. Documents are of the size and structure of real ones: plans of 41
arguments with the traffic of every link, trials of which a fifth were compiled. One study, the newest, has 20,000
trials; the others have 2,000 each, copied inside of the database from one study of each slice.
"""

import argparse
import itertools
import random
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Integer, func, insert, literal, select

sys.path.insert(0, str(Path(__file__).parents[1]))

import storage
from storage import migrations
from storage.engines import make_engine, writing
from storage.schema import PlanRow, TrialRow
from storage.sql.plans import _columns
from storage.urls import parse
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.default import row_major
from tuner.plans.plan import Baseline, Constraints, Evidence, Plan, PlanState
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import ArgumentSharding
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.links import chip_coords, links
from tuner.slices.names import parse_slice
from tuner.stores import StudyKey, Trial, TrialState

MODELS = (
    "wan2.1-t2v-1.3b",
    "wan2.1-t2v-14b",
    "wan2.1-i2v-14b",
    "wan2.2-t2v-a14b-high",
    "wan2.2-t2v-a14b-low",
    *(f"team{number}.denoiser:workload" for number in range(15)),
)
SLICES = tuple(
    map(
        parse_slice,
        ("v5e-2x2", "v5e-2x4", "v5e-4x4", "v5e-4x8", "v5e-8x8", "v6e-2x2", "v6e-2x4", "v6e-4x4", "v6e-4x8", "v6e-8x8"),
    )
)
TOOLCHAINS = (
    Toolchain(jax="0.10.2", jaxlib="0.10.2", libtpu="0.0.42.1"),
    Toolchain(jax="0.11.1", jaxlib="0.11.1", libtpu="0.0.46"),
    Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1"),
)
VERSIONS = {0: 1, 1: 1, 2: 3}
"""Versions of a plan under each toolchain, of which the last is active."""

SHAPES = tuple(f"{w}x{h}x{f}" for w in range(320, 1280, 96) for h in (320, 480) for f in (17, 33, 49, 65, 81))
TEMPLATE = 2000
START = datetime(2026, 1, 1, tzinfo=UTC)


def workload(model, shape):
    revision = "2.1" if "2.1" in model else "2.2"
    identity = {"model": model, "revision": revision, "config": "ab" * 32, "shape": shape, "weights_dtype": "bfloat16"}
    return WorkloadKey(model=model, shape=shape, identity=tuple(identity.items()))


def candidate(slice_, block=0):
    devices = slice_.num_devices
    axes = {"data": 1, "cfg": 2, "ring": 1, "context": 1, "ulysses": devices // 2, "tensor": 1}
    return Candidate(
        layout=Layout.of(axes, {"weights": "replicated", "blocks": f"1024,2048,{1024 + block}"}),
        compiler_options=(("xla_tpu_enable_async_all_to_all", "true"),),
    )


def details(slice_, step_s):
    """A prediction's document."""
    coords, wires = chip_coords(slice_), links(slice_)
    names = [
        f"{','.join(map(str, coords[a]))}->{','.join(map(str, coords[b]))}"
        for a, b in itertools.islice(zip(wires.source, wires.target, strict=True), 256)
    ]
    return {
        "step_s": step_s,
        "matmul_s": 0.26 * step_s,
        "memory_s": 0.02 * step_s,
        "copy_s": 0.03 * step_s,
        "compute_s": 0.31 * step_s,
        "attention_s": 0.6 * step_s,
        "kernel_s": 0.0,
        "exposed_communication_s": 0.09 * step_s,
        "communication_s": 0.1 * step_s,
        "communication_bound_s": 0.07 * step_s,
        "peak_compute_s": 0.7 * step_s,
        "received_bytes": 2273312768.0,
        "links": len(wires),
        "idle_links": 0,
        "busiest_link": names[0] if names else "",
        "busiest_link_s": 0.07 * step_s,
        "exposed_by_axes": {"cfg": 0.01 * step_s, "ulysses": 0.08 * step_s},
        "unknown_kernels": [],
        "busy_links": [
            {"name": name, "busy_s": 0.07 * step_s, "by_axes": [["ulysses", 0.06 * step_s], ["cfg", 0.01 * step_s]]}
            for name in names[:64]
        ],
        "collectives": [
            {
                "name": f"all_to_all.{number}",
                "kind": "all-to-all",
                "axes": ["ulysses"],
                "times": 30,
                "operand_bytes": 25165824,
                "alone_s": 0.000297,
                "bound_s": 0.000291,
                "exposed_s": 0.0089,
                "busiest_link": names[0] if names else "",
                "busiest_bytes": 12582912.0,
            }
            for number in range(8)
        ],
    }


def arguments():
    paths = [
        f"params/blocks/{part}/{name}"
        for part in ("attn1/to_q", "attn1/to_k", "attn1/to_v", "attn1/to_out", "attn2/to_q", "attn2/to_k", "ffn/net")
        for name in ("kernel", "bias", "norm", "scale", "shift")
    ]
    leaves = [
        ArgumentSharding(path=path, shape=(30, 1536, 1536), dtype="bfloat16", spec=((), (), ("ulysses",)))
        for path in paths
    ]
    return (
        *leaves,
        *(ArgumentSharding(path=f"inputs/{n}", shape=(2, 16), dtype="float32", spec=((), ())) for n in range(6)),
    )


def plans(count):
    """Yields rows of plans. What a version shares with the next is made once."""
    clock = itertools.count()
    number = 0
    for slice_ in SLICES:
        chosen, placement = candidate(slice_), row_major(slice_)
        # The bulk of a document, which would take most of the time if it were made for each plan.
        bulk = {
            "details": details(slice_, 0.5),
            "arguments": [{"path": a.path, "shape": a.shape, "dtype": a.dtype, "spec": a.spec} for a in arguments()],
        }
        for model, shape in itertools.product(MODELS, SHAPES):
            step_s = 0.2 + random.random()
            for toolchain, versions in VERSIONS.items():
                for version in range(1, versions + 1):
                    if number == count:
                        return
                    number += 1
                    made = START + timedelta(minutes=next(clock))
                    plan = Plan(
                        workload=workload(model, shape),
                        slice=slice_,
                        toolchain=TOOLCHAINS[toolchain],
                        constraints=Constraints(),
                        candidate=chosen,
                        placement=placement,
                        arguments=(),
                        evidence=Evidence.PREDICTED,
                        step_s=step_s / (1 + 0.05 * version),
                        memory_bytes=3 << 30,
                        details={},
                        baselines=(
                            Baseline(name="A", layout="cfg=2 context=4", step_s=1.2 * step_s),
                            Baseline(name="B", layout="ulysses=8", step_s=1.05 * step_s),
                        ),
                        study=f"{model}@{shape} {slice_.name} predicted",
                        trial=number % TEMPLATE,
                        created_at=made,
                    )
                    active = version == versions
                    row = _columns(plan)
                    yield row | {
                        "document": row["document"] | bulk,
                        "version": version,
                        "state": PlanState.ACTIVE if active else PlanState.SUPERSEDED,
                        "stored_at": made,
                        "note": "there was no plan" if version == 1 else "5.0% faster than the active plan",
                    }


def trials(slice_, count):
    """Yields trials as a search leaves them: one in five compiled, the others rejected, a few failed."""
    placement = row_major(slice_)
    reasons = (RejectReason.HBM, RejectReason.BOUND, RejectReason.INDIVISIBLE, RejectReason.SCOPED_VMEM)
    for number in range(count):
        bound_s = 0.2 + 0.00001 * number + 0.1 * random.random()
        at = START + timedelta(seconds=13 * number)
        common = {
            "number": number,
            "candidate": candidate(slice_, number),
            "bound_s": bound_s,
            "host": f"worker-{number % 16}",
            "started_at": at,
            "finished_at": at + timedelta(seconds=12),
        }
        if number % 5 == 0:
            predicted_s = bound_s * (1.1 + random.random())
            yield Trial(
                **common,
                state=TrialState.COMPLETE,
                stage=Stage.PLACE,
                baseline={0: "A", 5: "B"}.get(number, ""),
                estimate_s=bound_s * 1.2,
                predicted_s=predicted_s,
                numbers={
                    "compute_s": 0.31 * predicted_s,
                    "attention_s": 0.6 * predicted_s,
                    "memory_bytes": 3.0 * 2**30,
                },
                placement=placement,
                details=details(slice_, predicted_s),
                lowered_digest=f"{number:064x}",
            )
        elif number % 97 == 0:
            yield Trial(**common, state=TrialState.FAILED, stage=Stage.COMPILE)
        else:
            reason = reasons[number % len(reasons)]
            numbers = {"needed_bytes": 2.8e10, "available_bytes": 1.69e10}
            detail = "arguments and results alone need 26.69 GiB on each device; v5e has 15.75 GiB"
            yield Trial(
                **common,
                state=TrialState.REJECTED,
                stage=Stage.SCREEN,
                numbers=numbers,
                rejection=Rejection(stage=Stage.SCREEN, reason=reason, detail=detail, numbers=numbers),
            )


def study_key(number):
    slice_ = SLICES[number % len(SLICES)]
    rest = number // len(SLICES)
    model, shape = MODELS[rest % len(MODELS)], SHAPES[rest // len(MODELS) % len(SHAPES)]
    return StudyKey(workload=workload(model, shape), slice=slice_, toolchain=TOOLCHAINS[2], space_revision="1")


def copied(source, target):
    """The statement that gives one study the trials of another."""
    columns = list(TrialRow.__table__.columns)
    chosen = [literal(target, Integer).label("study_id") if column.name == "study_id" else column for column in columns]
    return insert(TrialRow).from_select(
        [column.name for column in columns], select(*chosen).where(TrialRow.study_id == source)
    )


def fill(url, *, plan_count, trial_count, study_trials):
    random.seed(0)
    migrations.init(url)
    engine = writing(make_engine(parse(url)))
    with engine.connect() as connection:
        there = connection.scalar(select(func.count()).select_from(PlanRow)) or 0
    if there >= plan_count:
        print(f"{there} plans are there already")
        return
    started = time.monotonic()
    rows = plans(plan_count)
    while batch := list(itertools.islice(rows, 2000)):
        with engine.begin() as connection:
            connection.execute(insert(PlanRow), batch)
    print(f"{plan_count} plans in {time.monotonic() - started:.0f} s", flush=True)
    with storage.open_store(url) as store:
        templates = {}
        for number in range((trial_count - study_trials) // TEMPLATE):
            study = store.open_study(study_key(number))
            name = study.key.slice.name
            if name in templates:
                with engine.begin() as connection:
                    connection.execute(copied(templates[name], study.id))
            else:
                templates[name] = study.id
                store.save_trials(study.id, list(trials(study.key.slice, TEMPLATE)))
            store.count_refusals(study.id, {"indivisible": 812, "illegal-options": 96})
            store.close_run(study.id, proved=number % 3 == 0, spent_s=60.0)
        large = store.open_study(
            StudyKey(
                workload=workload(MODELS[0], "832x480x81"),
                slice=parse_slice("v5e-4x4"),
                toolchain=TOOLCHAINS[2],
                space_revision="large",
            )
        )
        rest = trials(large.key.slice, study_trials)
        while chunk := list(itertools.islice(rest, 2000)):
            store.save_trials(large.id, chunk)
        store.close_run(large.id, proved=False, spent_s=600.0)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
    engine.dispose()
    print(f"{trial_count} trials, study {large.id} with {study_trials}; {time.monotonic() - started:.0f} s in all")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--plans", type=int, default=100_000)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--study", type=int, default=20_000)
    arguments_ = parser.parse_args()
    fill(arguments_.url, plan_count=arguments_.plans, trial_count=arguments_.trials, study_trials=arguments_.study)


if __name__ == "__main__":
    main()
