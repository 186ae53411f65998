"""Records what the installed TPU compiler does on v5e slices of more than 16 chips, into tests/assets/routing.json.

For groups of many shapes and four operations: whether it compiles, whether an all-to-all or permute is direct, and how
many steps its store-and-forward schedule has where it is not. Needs no TPU.
"""

import json
import random
from importlib import metadata

from record_rings import ROOT, ask, question, slice_of


def tiles(slice_, members):
    """Shifts a group over the slice where that covers every chip once; else pairs up what is left."""
    nx, ny = slice_.shape
    taken, groups = set(), []
    for y in range(ny):
        for x in range(nx):
            group = [(x + dx, y + dy) for dx, dy in members]
            if all(0 <= a < nx and 0 <= b < ny and (a, b) not in taken for a, b in group):
                taken.update(group)
                groups.append([slice_.device(place) for place in group])
    return groups if len(taken) == slice_.num_devices else None


SHAPES = {
    "pair 1": [(0, 0), (1, 0)],
    "pair 2": [(0, 0), (2, 0)],
    "pair 4": [(0, 0), (4, 0)],
    "pair 2 down": [(0, 0), (0, 2)],
    "pair 4 down": [(0, 0), (0, 4)],
    "diagonal pair": [(0, 0), (1, 1)],
    "line 4": [(k, 0) for k in range(4)],
    "line 4 down": [(0, k) for k in range(4)],
    "every second 4": [(2 * k, 0) for k in range(4)],
    "line 8 down": [(0, k) for k in range(8)],
    "2x2": [(0, 0), (1, 0), (0, 1), (1, 1)],
    "2x2 as a cycle": [(0, 0), (1, 0), (1, 1), (0, 1)],
    "4x2": [(x, y) for y in range(2) for x in range(4)],
    "4x2 as a cycle": [*((x, 0) for x in range(4)), *((x, 1) for x in reversed(range(4)))],
    "2x2 at 2": [(0, 0), (2, 0), (0, 2), (2, 2)],
    "4x4": [(x, y) for y in range(4) for x in range(4)],
    "L": [(0, 0), (0, 1), (0, 2), (1, 0)],
}


def shapes(slice_):
    for what, members in SHAPES.items():
        groups = tiles(slice_, members)
        if groups is not None:
            yield what, groups
    devices = list(range(slice_.num_devices))
    for size in (4, 8):
        random.Random(size).shuffle(devices)
        yield f"random {size}", [devices[k : k + size] for k in range(0, len(devices), size)]
    if slice_.shape == (8, 8):
        yield "all", [list(range(64))]


def main():
    cases = [
        (slice_, what, groups, op)
        for slice_ in (slice_of("v5e", (4, 8), 0), slice_of("v5e", (8, 8), 0))
        for what, groups in shapes(slice_)
        for op in ("all-reduce", "all-gather", "all-to-all", "collective-permute")
    ]
    answers = list(ask([question(slice_, groups, op, 4096) for slice_, _, groups, op in cases]))
    rows = []
    for (slice_, what, groups, op), answer in zip(cases, answers, strict=True):
        answer.pop("rings", None)
        rows.append({"shape": slice_.shape, "what": what, "op": op, "groups": groups, **answer})
    header = {"recorded_by": "benchmarks/record_routing.py", **{p: metadata.version(p) for p in ("jax", "libtpu")}}
    body = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (ROOT / "tests/assets/routing.json").write_text(f'{{"about":{json.dumps(header)},\n"cases":[\n{body}\n]}}\n')
    print(f"{len(rows)} cases, {sum('error' in row for row in rows)} refused")


if __name__ == "__main__":
    main()
