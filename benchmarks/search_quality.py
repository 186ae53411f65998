"""Structured search with refinement against exhaustive search (8 devices) and random bijections (more devices).

    python benchmarks/search_quality.py [--random 1000000] [--mixes 10] [--devices 8] [--slice v5e-2x8]

Each mix is a layout and a handful of collectives with random kinds, axes and sizes; the seed is its number. For people
the best structured placement alone is shown too.
"""

import argparse
import sys
import time
from itertools import permutations
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tuner.calibration.calibration import CALIBRATIONS
from tuner.layouts.layout import Layout
from tuner.placements.ranking import rank_with
from tuner.program.program import Collective, CollectiveKind, Program
from tuner.slices.slice import Slice
from tuner.timeline.ranker import Ranker

EIGHT = [("v5e", (2, 4)), ("v6e", (2, 4)), ("v5p", (2, 2, 2)), ("v4", (2, 2, 2)), ("v7x", (2, 2, 1))]
SIXTEEN = [
    ("v5e", (4, 4)),
    ("v6e", (4, 4)),
    ("v5e", (2, 8)),
    ("v6e", (2, 8)),
    ("v5p", (2, 2, 4)),
    ("v4", (2, 2, 4)),
    ("v7x", (2, 2, 2)),
]
THIRTY_TWO = [("v7x", (2, 2, 4))]  # 16 chips
MESHES = {
    8: [(8,), (2, 4), (4, 2), (2, 2, 2)],
    16: [(16,), (2, 8), (4, 4), (8, 2), (2, 2, 4), (2, 4, 2), (2, 2, 2, 2)],
    32: [(32,), (4, 8), (2, 16), (2, 4, 4), (2, 2, 8)],
}
KINDS = [kind for kind in CollectiveKind if kind is not CollectiveKind.DCN]


def mix(slice_, seed):
    """A layout and a program of two to five collectives over random axes."""
    rng = np.random.default_rng(seed)
    n = slice_.num_devices
    sizes = MESHES[n][rng.integers(len(MESHES[n]))]
    layout = Layout.of(dict(zip("abcd", sizes, strict=False)))
    ids = np.arange(n).reshape(sizes)
    nodes = []
    for index in range(rng.integers(2, 6)):
        count = int(rng.integers(1, len(sizes) + 1))
        axes = sorted(rng.choice(len(sizes), count, replace=False).tolist())
        rest = [axis for axis in range(len(sizes)) if axis not in axes]
        groups = ids.transpose(*rest, *axes).reshape(-1, int(np.prod([sizes[axis] for axis in axes]))).tolist()
        kind = KINDS[rng.integers(len(KINDS))]
        bytes_ = int(10 ** rng.uniform(4, 8))
        permute = kind is CollectiveKind.COLLECTIVE_PERMUTE
        nodes.append(
            Collective(
                name=f"c{index}",
                kind=kind,
                operand_bytes=bytes_,
                result_bytes=bytes_ * (len(groups[0]) if kind is CollectiveKind.ALL_GATHER else 1),
                groups=() if permute else tuple(map(tuple, groups)),
                pairs=tuple((g[k], g[(k + 1) % len(g)]) for g in groups for k in range(len(g))) if permute else (),
            )
        )
    return Ranker(Program(devices=n, schedule=tuple(nodes)), slice_, layout, CALIBRATIONS[slice_.generation_name])


def everything(ranker):
    best = np.inf
    rows = np.array(list(permutations(range(8))))
    for at in range(0, len(rows), 8192):
        best = min(best, float(ranker.step_s(rows[at : at + 8192]).min()))
    return best


def random(ranker, count, seed):
    rng = np.random.default_rng(seed)
    best = np.inf
    for at in range(0, count, 8192):
        rows = rng.permuted(np.tile(np.arange(ranker.slice_.num_devices), (min(8192, count - at), 1)), axis=1)
        best = min(best, float(ranker.step_s(rows).min()))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=1_000_000)
    parser.add_argument("--mixes", type=int, default=10)
    parser.add_argument("--devices", type=int, choices=(8, 16, 32))
    parser.add_argument("--slice", help="only this one")
    options = parser.parse_args()
    worse = 0
    for generation, shape in (*EIGHT, *SIXTEEN, *THIRTY_TWO):
        slice_ = Slice(generation_name=generation, shape=shape, wrap=(False,) * len(shape))
        if options.devices not in (None, slice_.num_devices) or options.slice not in (None, slice_.name):
            continue
        for seed in range(options.mixes):
            ranker = mix(slice_, seed)
            start = time.process_time()
            found = rank_with(ranker)
            took = time.process_time() - start
            plain = rank_with(ranker, starts=0).best[0].step_s
            other = everything(ranker) if slice_.num_devices == 8 else random(ranker, options.random, seed)
            ours = found.best[0].step_s
            kind = "all" if slice_.num_devices == 8 else "random"
            verdict = "worse" if ours > other * (1 + 1e-9) else "equal" if ours > other * (1 - 1e-9) else "better"
            worse += verdict == "worse"
            print(
                f"{slice_.name:10} mix {seed}: {verdict:6} search {ours * 1e6:9.2f} us "
                f"(structured {plain * 1e6:9.2f}), {kind} {other * 1e6:9.2f} us, {took:.2f} s of search",
                flush=True,
            )
    print(f"worse in {worse}")


if __name__ == "__main__":
    main()
