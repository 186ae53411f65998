"""Cycles of the splash attention kernel, counted in the compiler's own VLIW bundles. Needs libtpu, but no TPU.

The compiler gives no cycle estimate for a Pallas kernel, but it dumps what it schedules, one bundle for each cycle.
The kernel is a loop over grid steps. Its body holds two regions that most steps skip, the start of a query block
(accumulators set to zero) and its finish (division, conversion, store), and between them the products and the softmax
of one key/value block; the inner loop over compute blocks is unrolled. The bundles along the path of a step are its
cycles as long as nothing stalls: the schedule already spaces the pushes into the matrix units by the rate at which
they accept them (16 cycles for each 16x128 bf16 register on v5e, 8 on v6e), so what is left out is waiting for HBM
and the latency of scalar loads and branches.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tuner.calibration.attention_table import Variant
from tuner.errors import TunerError
from tuner.slices.generations import generation as generation_named

_BRANCH_DELAY = 4  # bundles after a branch that run whether it is taken or not, on every generation from v5e to v7x
_BUNDLE = re.compile(r"^ *(?:0x)?([0-9a-f]+) +([A-Z]{2})? *: *>* *\{")
_BRANCH = re.compile(r"sbr\.rel \([^)]*\) target = \$region(\d+)")
_REGION_END = re.compile(r"Start/End empty region (\d+)")
_SCOPED = re.compile(r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"0","size":"(\d+)"\}\]')
_OVERFLOW = re.compile(r"Scoped allocation with size ([\d.]+)M and limit ([\d.]+)M")


class BundlesError(TunerError):
    """The dump does not have the shape that this module knows; the text says what was missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """Bundles on the path of one grid step, and what the first and the last step of a query block add to it."""

    step: int
    start: int
    finish: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """One compile of the kernel. `cycles` is None if the blocks do not fit the scoped VMEM.

    `limit_bytes` is the compiler's default limit, known only from its refusals.
    """

    cycles: Cycles | None
    vmem_bytes: int
    limit_bytes: int | None = None


def read_cycles(text: str) -> Cycles:
    """Counts the bundles of a ``final_bundles`` dump of the splash attention kernel. Raises BundlesError."""
    bundles: list[tuple[int, str, str]] = []  # address, label, text
    for line in text.splitlines():
        if match := _BUNDLE.match(line):
            bundles.append((int(match[1], 16), match[2] or "", line))
        elif bundles:
            address, label, body = bundles[-1]
            bundles[-1] = (address, label, body + line)
    ends = {int(region): address for address, _, body in bundles for region in _REGION_END.findall(body)}
    branches = [(address, int(region)) for address, _, body in bundles for region in _BRANCH.findall(body)]
    heads = [address for address, label, _ in bundles if label == "LB"]
    back = [address for address, region in branches if region not in ends]
    # The first forward branch skips the whole step while the pipeline fills; the others lie inside it.
    skipped = [(address + _BRANCH_DELAY + 1, ends[region]) for address, region in branches if region in ends][1:]
    if len(heads) != 1 or len(back) != 1 or len(skipped) < 2:
        raise BundlesError(
            f"expected one loop and in it a start and a finish that are skipped, got {len(heads)} loop bodies, "
            f"{len(back)} branches back and {len(skipped)} regions"
        )
    products = [
        sum("vmatmul" in body for address, _, body in bundles if low <= address < high) for low, high in skipped
    ]
    if products[0] or products[-1]:
        raise BundlesError(f"expected no matrix products at the start and finish of a query block, got {products}")
    start, finish = (high - low for low, high in (skipped[0], skipped[-1]))
    return Cycles(step=back[0] + _BRANCH_DELAY + 1 - heads[0] - start - finish, start=start, finish=finish)


def derive(
    generation: str, head_dim: int, blocks: tuple[int, int, int], variant: Variant, *, timeout_s: float = 300.0
) -> Derived:
    """Compiles the kernel for a generation in a child process and reads its cycles.

    Raises BundlesError if the compiler fails for another reason than VMEM, or dumps something else.
    """
    with tempfile.TemporaryDirectory() as dump:
        flags = "--xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=final_bundles"
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "TPU_SKIP_MDS_QUERY": "1",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            "LIBTPU_INIT_ARGS": f"--xla_jf_dump_to={dump} {flags}",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        command = [sys.executable, "-m", __name__, generation, str(head_dim), *map(str, blocks), variant]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
        if overflow := _OVERFLOW.search(run.stderr):
            needed, limit = (int(float(size) * (1 << 20)) for size in overflow.groups())
            return Derived(cycles=None, vmem_bytes=needed, limit_bytes=limit)
        if run.returncode:
            raise BundlesError(f"compiling {blocks} for {generation} failed ({run.returncode}): {run.stderr[-500:]}")
        dumps = [path for path in Path(dump).glob("*splash*final_bundles.txt") if "schedule-analysis" not in path.name]
        if len(dumps) != 1:
            raise BundlesError(f"expected one dump of the kernel for {blocks} on {generation}, got {len(dumps)}")
        return Derived(cycles=read_cycles(dumps[0].read_text()), vmem_bytes=int(run.stdout))


def _compile(generation: str, head_dim: int, blocks: tuple[int, int, int], variant: Variant) -> int:
    """Compiles the kernel in this process and returns the bytes of scoped VMEM that it uses."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import topologies
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info as mask_info

    facts = generation_named(generation)
    shape = "2x2" if facts.dimensions == 2 else "2x2x1"
    topology = topologies.get_topology_desc(platform="tpu", topology_name=f"{facts.topology_prefix}:{shape}")
    sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])

    def abstract(*dimensions: int, dtype: object = jnp.bfloat16) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dimensions, dtype, sharding=sharding)

    # Enough blocks for a steady state; the extents of the grid are constants in the code and cost nothing.
    heads, (q_len, kv_len) = 4, (4 * blocks[0], 4 * blocks[1])
    masked = variant is Variant.MASKED
    info = mask_info.MaskInfo(
        data_next=None,
        mask_next=None,
        block_mask=None,
        partial_mask_blocks=None,
        q_sequence=np.zeros(q_len, np.int32) if masked else None,
    )
    kernel = kernels.SplashAttentionKernel(
        info,
        None,
        None,
        is_mqa=False,
        block_sizes=kernels.BlockSizes(block_q=blocks[0], block_kv=blocks[1], block_kv_compute=blocks[2]),
        save_residuals=variant is Variant.RESIDUALS,
        mask_value=kernels.DEFAULT_MASK_VALUE,
        attn_logits_soft_cap=None,
        residual_checkpoint_name=None,
        mask_function=(lambda queries, keys: keys < kv_len - 1) if masked else None,
        interpret=False,
    )
    arguments = [abstract(heads, length, head_dim) for length in (q_len, kv_len, kv_len)]
    if variant is Variant.SEGMENTED:
        arguments += [abstract(length, dtype=jnp.int32) for length in (q_len, kv_len)]

    def attention(q: jax.Array, k: jax.Array, v: jax.Array, *segments: jax.Array) -> object:
        return kernel(q, k, v, segment_ids=kernels.SegmentIds(*segments)) if segments else kernel(q, k, v)

    compiled = jax.jit(attention).trace(*arguments).lower(lowering_platforms=("tpu",)).compile()
    return max(map(int, _SCOPED.findall(compiled.as_text())))


if __name__ == "__main__":
    _generation, _head_dim, _q, _kv, _compute, _variant = sys.argv[1:]
    print(_compile(_generation, int(_head_dim), (int(_q), int(_kv), int(_compute)), Variant(_variant)))
