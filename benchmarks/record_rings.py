"""Records the order in which the installed TPU compiler walks groups of chips, into tests/assets/rings.

    python benchmarks/record_rings.py [GENERATION ...]

For v5e and v6e: every evenly strided rectangle that tiles the slice, with its members listed in a random order, and
groups that are no rectangles. For v4, v5p and v7x: lines, planes, blocks and cubes, listed in several orders. Needs no
TPU.
"""

import json
import random
import subprocess
import sys
from importlib import metadata
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tuner.slices.slice import Slice  # noqa: E402

PLANAR = {
    "v5e": [((2, 4), 0), ((2, 8), 0), ((4, 4), 0), ((4, 8), 0), ((8, 8), 0), ((8, 16), (0, 1)), ((16, 16), (1, 1))],
    "v6e": [((2, 4), 0), ((2, 8), 0), ((4, 4), 0), ((4, 4), (1, 1)), ((8, 8), 0), ((8, 8), (1, 1)), ((8, 16), (0, 1))],
}
SPATIAL = {
    "v4": [((2, 2, 2), 0), ((2, 2, 4), 0), ((4, 4, 4), 0), ((4, 4, 4), (1, 1, 1))],
    "v5p": [((2, 2, 2), 0), ((2, 2, 4), 0), ((4, 4, 4), 0), ((4, 4, 4), (1, 1, 1))],
    "v7x": [((2, 2, 1), 0), ((2, 2, 2), 0), ((2, 2, 4), 0), ((4, 4, 4), (1, 1, 1))],
}


def slice_of(generation, shape, wrap):
    return Slice(generation_name=generation, shape=shape, wrap=tuple(map(bool, wrap or (0,) * len(shape))))


def rectangles(slice_):
    """Groups a x b chips at strides sx, sy that tile the slice, members shuffled."""
    nx, ny = slice_.shape
    for a, b, sx, sy in product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16), (1, 2), (1, 2)):
        if nx % (a * sx) or ny % (b * sy) or not 3 <= a * b < nx * ny or (a == 1 and sx > 1) or (b == 1 and sy > 1):
            continue
        groups = []
        for ox, oy, px, py in product(range(0, nx, a * sx), range(0, ny, b * sy), range(sx), range(sy)):
            group = [slice_.device((ox + px + i * sx, oy + py + j * sy)) for j in range(b) for i in range(a)]
            random.Random(len(groups)).shuffle(group)
            groups.append(group)
        yield f"{a}x{b} at {sx}x{sy}", groups


def seams(slice_):
    """Blocks and lines that tile a slice from a corner which is not the first chip, so that some cross a seam."""
    for axis, size, other in product((0, 1), (2, 4, 8), (1, 2, 4)):
        if not slice_.wrap[axis] or size >= slice_.shape[axis] or size * other < 4 or size * other > 16:
            continue
        for shift in range(1, size):
            wide, high = (size, other) if axis == 0 else (other, size)
            yield _tiled(slice_, wide, high, *((shift, 0) if axis == 0 else (0, shift)))
    if all(slice_.wrap) and min(slice_.shape) > 4:
        for right, up in product((1, 2, 3), repeat=2):
            yield _tiled(slice_, 4, 4, right, up)


def _tiled(slice_, wide, high, right, up):
    nx, ny = slice_.shape
    groups = [
        [slice_.device(((x + right + i) % nx, (y + up + j) % ny)) for j in range(high) for i in range(wide)]
        for y in range(0, ny, high)
        for x in range(0, nx, wide)
    ]
    return f"{wide}x{high} from {right},{up}", groups


def irregular(slice_):
    """Groups that are no rectangles, or one of which is none."""
    for size, seed in product((4, 8), range(3)):
        devices = list(range(slice_.num_devices))
        random.Random(seed).shuffle(devices)
        if size < slice_.num_devices:
            yield f"random {size}", [devices[k : k + size] for k in range(0, len(devices), size)]
    yield "whole", [list(range(slice_.num_devices))]
    if slice_.shape == (4, 4):
        blocks = [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
        blocks[0][3], blocks[1][3] = blocks[1][3], blocks[0][3]
        yield "two of four blocks disturbed", blocks


def boxes(slice_):
    """Lines, planes, blocks and cubes at stride 1, each in natural, reversed and two shuffled orders."""
    shape, cores = slice_.shape, slice_.cores
    for box in product(*([d for d in (1, 2, 4) if d <= n] for n in shape)):
        for both in {1, cores}:
            size = both
            for extent in box:
                size *= extent
            if size < 3:
                continue
            members = list(product(*(range(n) for n in reversed(box)), range(both)))
            for order in ("natural", "reversed", "shuffled", "shuffled again"):
                if order != "natural" and size == slice_.num_devices:
                    continue
                groups = []
                for *corner, core in product(
                    *(range(0, n, e) for n, e in zip(shape, box, strict=True)), range(cores // both)
                ):
                    group = [
                        slice_.device(tuple(c + d for c, d in zip(corner, reversed(m[:-1]), strict=True)), core + m[-1])
                        for m in members
                    ]
                    if order == "reversed":
                        group.reverse()
                    elif order != "natural":
                        random.Random(f"{order} {len(groups)}").shuffle(group)
                    groups.append(group)
                yield f"{'x'.join(map(str, box))} cores {both}, {order}", groups


def question(slice_, groups, op="all-reduce", kib=4096):
    generation = slice_.generation
    return {
        "topology": f"{generation.topology_prefix}:{'x'.join(map(str, slice_.shape))}",
        "config": generation.chip_config,
        "wrap": [*map(int, slice_.wrap), 0][:3] if any(slice_.wrap) else None,
        "groups": [[[*[*slice_.coords(d), 0][:3], slice_.core(d)] for d in group] for group in groups],
        "op": op,
        "kib": kib,
    }


def ask(questions):
    """Yields an answer for each question; a compiler that aborts is started again after the question that did it."""
    at = 0
    while at < len(questions):
        asked = subprocess.run(
            [sys.executable, str(ROOT / "tests/tuner/network/ring_probe.py")],
            input=json.dumps(questions[at:]),
            capture_output=True,
            text=True,
            check=False,
        )
        answers = [json.loads(line) for line in asked.stdout.splitlines()]
        yield from answers
        at += len(answers)
        if at < len(questions):
            yield {"error": f"abort {asked.returncode}"}
            at += 1


def main(names):
    versions = {package: metadata.version(package) for package in ("jax", "libtpu")}
    for generation in names or (*PLANAR, *SPATIAL):
        cases = []
        for shape, wrap in (PLANAR | SPATIAL)[generation]:
            slice_ = slice_of(generation, shape, wrap)
            kinds = (
                (*rectangles(slice_), *seams(slice_), *irregular(slice_))
                if generation in PLANAR
                else tuple(boxes(slice_))
            )
            cases += [(slice_, what, groups) for what, groups in kinds]
        answers = list(ask([question(slice_, groups) for slice_, _, groups in cases]))
        rows = []
        for (slice_, what, groups), answer in zip(cases, answers, strict=True):
            flat = [device for group in groups for device in group]
            rings = [[flat[k] for k in ring] for ring in answer.pop("rings", [])]
            wrap = [int(w) for w in slice_.wrap]
            rows.append({"shape": slice_.shape, "wrap": wrap, "what": what, "groups": groups, "rings": rings, **answer})
        path = ROOT / "tests/assets/rings" / f"{generation}.json"
        header = {"recorded_by": "benchmarks/record_rings.py", "generation": generation, **versions}
        body = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        path.write_text(f'{{"about":{json.dumps(header)},\n"cases":[\n{body}\n]}}\n')
        failed = sum("error" in row for row in rows)
        print(f"{generation}: {len(rows)} cases, {failed} refused, {path.stat().st_size >> 10} KiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
