"""Why a published attention is faster than the splash kernel: cycles of attention with transposed scores.

    python benchmarks/transposed_attention.py [--generation v6e]

The source of the published Wan step on v6e-8 does not run JAX's splash attention, by which our step is predicted, but a
kernel of its own: keys times queries, so that a query's scores lie along sublanes and the maximum and the sum of a
softmax are additions of registers instead of reductions across lanes; powers of 2; no mask. This compiles a kernel of
that kind, written here, and counts its bundles as `adapters.jax.bundles` counts those of splash attention.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from adapters.jax.bundles import read_cycles
from tuner.calibration.attention import attention_seconds
from tuner.program.program import AttentionKernel
from tuner.slices.generations import generation as generation_named

HEAD_DIM = 128
CHOICES = ((1024, 1024, 256), (1024, 1024, 512), (3328, 2816, 256))
TOKENS, HEADS, CALLS = 75_600, 10, 40  # Wan 2.1 14B, 720p, 81 frames: one step on one of 4 x 2 chips
PUBLISHED_S = 0.668 * 4.5


def attend(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any, top_ref: Any, sum_ref: Any, out_ref: Any, *, at_once: int):
    """One block of keys: online softmax of scores [keys, queries]; results are [head size, queries]."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl

    @pl.when(pl.program_id(2) == 0)
    def start() -> None:
        top_ref[...] = jnp.full_like(top_ref, -1e30)
        sum_ref[...] = jnp.zeros_like(sum_ref)
        out_ref[...] = jnp.zeros_like(out_ref)

    def some_keys(part: Any, _: None) -> None:
        keys = pl.ds(part * at_once, at_once)
        scores = jax.lax.dot_general(
            k_ref[keys, :], q_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        before = top_ref[...]
        top = jnp.maximum(before, scores.max(axis=0)[None])
        weights, kept = jnp.exp2(scores - top[:1]), jnp.exp2(before - top)
        top_ref[...] = top
        sum_ref[...] = kept * sum_ref[...] + weights.sum(axis=0)[None]
        values = v_ref[keys, :].astype(jnp.float32)
        out_ref[...] = kept[:1] * out_ref[...] + jax.lax.dot_general(values, weights, (((0,), (0,)), ((), ())))

    jax.lax.fori_loop(0, k_ref.shape[0] // at_once, some_keys, None, unroll=True)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def finish() -> None:
        o_ref[...] = (out_ref[...] / sum_ref[:1]).astype(o_ref.dtype)


def compile_here(generation: str, query: int, key: int, at_once: int) -> None:
    from functools import partial

    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental import topologies
    from jax.experimental.pallas import tpu as pltpu

    facts = generation_named(generation)
    shape = "2x2" if facts.dimensions == 2 else "2x2x1"
    topology = topologies.get_topology_desc(platform="tpu", topology_name=f"{facts.topology_prefix}:{shape}")
    sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])
    heads, blocks = 4, 4
    kernel = pl.pallas_call(
        partial(attend, at_once=at_once),
        grid=(heads, blocks, blocks),
        in_specs=[
            pl.BlockSpec((None, query, HEAD_DIM), lambda head, i, j: (head, i, 0)),
            pl.BlockSpec((None, key, HEAD_DIM), lambda head, i, j: (head, j, 0)),
            pl.BlockSpec((None, key, HEAD_DIM), lambda head, i, j: (head, j, 0)),
        ],
        out_specs=pl.BlockSpec((None, HEAD_DIM, query), lambda head, i, j: (head, 0, i)),
        out_shape=jax.ShapeDtypeStruct((heads, HEAD_DIM, blocks * query), jnp.bfloat16),
        scratch_shapes=[pltpu.VMEM((rows, query), jnp.float32) for rows in (8, 8, HEAD_DIM)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary", "arbitrary"), vmem_limit_bytes=facts.vmem_bytes * 3 // 4
        ),
        name="transposed_attention",
    )
    arguments = [
        jax.ShapeDtypeStruct((heads, blocks * length, HEAD_DIM), jnp.bfloat16, sharding=sharding)
        for length in (query, key, key)
    ]
    jax.jit(kernel).trace(*arguments).lower(lowering_platforms=("tpu",)).compile()


def seconds(generation: str, blocks: tuple[int, int, int]) -> float:
    """Returns the step's attention with whole blocks, by the bundles of the kernel."""
    with tempfile.TemporaryDirectory() as dump:
        flags = "--xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=final_bundles"
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "TPU_SKIP_MDS_QUERY": "1",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            "LIBTPU_INIT_ARGS": f"--xla_jf_dump_to={dump} {flags}",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        command = [sys.executable, __file__, "--generation", generation, "--compile", *map(str, blocks)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        (text,) = (
            path.read_text()
            for path in Path(dump).glob("*transposed_attention*final_bundles.txt")
            if "schedule-analysis" not in path.name
        )
    cycles = read_cycles(text)
    queries, keys = (math.ceil(TOKENS / block) for block in blocks[:2])
    total = queries * (keys * cycles.step + cycles.start + cycles.finish)
    return CALLS * HEADS * total / generation_named(generation).clock_hz


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generation", default="v6e")
    parser.add_argument("--compile", type=int, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compile:
        compile_here(arguments.generation, *arguments.compile)
        return
    print(f"Wan 2.1 14B 720p 81 frames on v6e-8, one step: published {PUBLISHED_S:.3g} s, of blocks (3328, 2816, 256)")
    for blocks in CHOICES:
        kernel = AttentionKernel(
            name="", heads=HEADS, q_len=TOKENS, kv_len=TOKENS, head_dim=HEAD_DIM, blocks=blocks, masked=False
        )
        splash_s = CALLS * attention_seconds(kernel, arguments.generation)
        ours_s = seconds(arguments.generation, blocks)
        print(
            f"{blocks!s:>18} on {arguments.generation}: splash {splash_s:.2f} s, transposed {ours_s:.2f} s "
            f"({ours_s / PUBLISHED_S - 1:+.1%} to published)",
            flush=True,
        )


if __name__ == "__main__":
    main()
