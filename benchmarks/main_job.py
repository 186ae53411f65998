"""Figures of one compiled step: the compiler's cycles, our compute model, bytes received, custom calls.

    python benchmarks/main_job.py [--model M --shape S --slice N --axes cfg=2,ulysses=4 --set blocks=... --flag F=V]

Without options it takes the winning layout of `make tune` with the flags that every layout starts with. Figures are
the compiler's and the model's; no device is timed.
"""

from __future__ import annotations

import argparse
import re
import sys
import zlib

from adapters.jax.pool import CompilePool
from adapters.models.registry import resolve
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.ranking import rank_with
from tuner.plans.toolchain import installed_toolchain
from tuner.ports import Compiled, WorkloadSpec
from tuner.program.program import Compute, ComputeKind
from tuner.slices.names import parse_slice
from tuner.timeline.ranker import Ranker


def pairs(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wan2.1-t2v-1.3b")
    parser.add_argument("--shape", default="832x480x81")
    parser.add_argument("--slice", default="v5e-2x4")
    parser.add_argument("--axes", default="cfg=2,ulysses=4")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the layout")
    parser.add_argument("--flag", action="append", default=[], metavar="NAME=VALUE", help="a compiler flag")
    arguments = parser.parse_args()

    spec = WorkloadSpec(model=arguments.model, parameters={"shape": arguments.shape})
    workload, slice_ = resolve(spec), parse_slice(arguments.slice)
    axes = dict.fromkeys((dimension.name for dimension in workload.space.dimensions), 1)
    axes |= {name: int(size) for name, size in pairs(arguments.axes).items()}
    layout = Layout.of(axes, workload.space.defaults())
    layout = (workload.tuned(layout, slice_) or [layout])[0]
    layout = layout.replace_options(**dict(option.split("=", 1) for option in arguments.set))
    flags = tuple(tuple(flag.split("=", 1)) for flag in arguments.flag) or workload.space.initial_flags()
    texts: list[bytes] = []
    with CompilePool(on_text=lambda digest, text: texts.append(text)) as pool:
        outcome = pool.compile(spec, slice_, Candidate(layout=layout, compiler_options=flags))
    if not isinstance(outcome, Compiled):
        sys.exit(str(outcome))

    compute = [(node, times) for node, times in outcome.program.walk() if isinstance(node, Compute)]
    cycles = sum((node.cycles or 0) * times for node, times in compute if node.kind is not ComputeKind.KERNEL)
    targets = re.findall(r'custom_call_target="([^"]+)"', zlib.decompress(texts[0]).decode())
    ranker = Ranker(outcome.program, slice_, layout, calibration(slice_.generation_name))
    prediction = ranker.predict(rank_with(ranker).best[0].placement)
    memory = outcome.program.memory
    print(f"{workload.name} on {slice_.name}, {installed_toolchain()}")
    print(f"layout                             {layout} {dict(flags)}")
    print(f"compiled in                        {outcome.compile_s:.1f} s")
    print(f"compute outside attention          {cycles / slice_.generation.clock_hz:.4f} s (compiler's cycles)")
    print(f"                                   {prediction.compute_s:.4f} s (our compute model)")
    print(f"attention                          {prediction.attention_s:.4f} s (cycles of the compiler's bundles)")
    print(f"exposed communication              {prediction.exposed_communication_s:.4f} s (predicted)")
    print(f"step                               {prediction.step_s:.4f} s (predicted)")
    print(f"received by a device               {prediction.received_bytes / 1e9:.2f} GB")
    print(f"custom calls                       {', '.join(f'{targets.count(t)} {t}' for t in sorted(set(targets)))}")
    print(
        f"memory                             {'unknown' if memory is None else f'{memory.total_bytes / 2**30:.2f} GiB'}"
    )


if __name__ == "__main__":
    main()
