"""Ranks the placements of one program on a slice by the time of its whole step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tuner.calibration.calibration import Calibration
from tuner.layouts.layout import Layout
from tuner.network.cost import Degraded
from tuner.network.fabric import Floats, Ints
from tuner.network.patterns import Flow
from tuner.network.reach import is_limited
from tuner.network.rings import TOPOLOGY_AWARE
from tuner.placements.canonical import Canon
from tuner.placements.default import jax_default, row_major
from tuner.placements.families import Structure, structures
from tuner.placements.placement import Placement
from tuner.placements.refine import FEW_DEVICES, Score, every_placement, refine
from tuner.program.program import Program
from tuner.slices.slice import Slice
from tuner.slices.symmetry import symmetries
from tuner.timeline.ranker import Ranker

MOST_STRUCTURES = 50_000
"""Where there are more structured placements, walks are enumerated for the best of them only."""

WALKED = 32
"""How many of the best get all their walks then."""

BATCH = 4096

SMALL_DEVICES, LARGE_NEIGHBOURS, LARGE_ROUNDS = 64, 256, 8
"""Beyond so many devices a descent looks at so many exchanges in a round, and makes at most so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlacement:
    """A placement and the predicted time of a step under it."""

    placement: Placement
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlacements:
    """Placements of one program, fastest first.

    Attributes:
        best: distinct placements, fastest first; of equals the one that is simplest to describe.
        default: JAX's default order.
        row_major: chips listed row by row.
        worst: the slowest structured placement.
        count: distinct structured placements.
        refused: those of them that do not compile (or not to the same program).
        scored: placements looked at, refinement included.
    """

    best: tuple[RankedPlacement, ...]
    default: RankedPlacement
    row_major: RankedPlacement
    worst: RankedPlacement
    count: int
    refused: int = 0
    scored: int


@dataclass(slots=True)
class _Entry:
    devices: Ints
    step_s: float
    complexity: tuple[int, int, int]
    description: str


def rank(
    program: Program,
    slice_: Slice,
    layout: Layout,
    calibration: Calibration,
    *,
    degraded: Sequence[Degraded] = (),
    keep: int = 8,
    starts: int = 4,
    jax: tuple[int, int] = (0, 12),
    like: Placement | None = None,
) -> RankedPlacements:
    """Ranks every structured placement, then improves the best ones by exchanging devices. Repeatable.

    On slices of at most eight devices every bijection is looked at. Where v5e slices of more than 16 chips have no
    route, the step takes infinitely long; `Ranker.verdict` says why.

    Args:
        program: for as many devices as the slice has, else InvalidValue.
        slice_: the slice.
        layout: names the mesh axes.
        calibration: constants of the slice's generation.
        degraded: links that run slower than the others; placements avoid them.
        keep: how many placements to return.
        starts: how many of the best to improve; 0 looks at structured placements only.
        jax: version whose default order is compared with.
        like: the placement that the program was compiled under, where the program depends on it (v5e slices of more
            than 16 chips): placements that would compile to another program take infinitely long.
    """
    ranker = Ranker(program, slice_, layout, calibration, degraded)
    return rank_with(ranker, keep=keep, starts=starts, jax=jax, like=like)


def rank_with(
    ranker: Ranker, *, keep: int = 8, starts: int = 4, jax: tuple[int, int] = (0, 12), like: Placement | None = None
) -> RankedPlacements:
    """Does the same as `rank` with a `Ranker` that is there already."""
    slice_, score = ranker.slice_, _scorer(ranker, like)
    if not slice_.generation.has_links:
        return _in_order(ranker)
    symmetric = not ranker.network.degraded
    canon = Canon(slice_, ranker.patterns, symmetric=symmetric)
    entries = _structured(ranker, canon, score)
    count = scored = len(entries)
    entries.sort(key=_order)
    runs = [entry for entry in entries if math.isfinite(entry.step_s)]
    worst = max(runs or entries, key=lambda entry: (entry.step_s, entry.complexity))
    named = [
        _Entry(np.asarray(p.devices), 0.0, complexity, p.description)
        for p, complexity in ((jax_default(slice_, ranker.layout, jax=jax), (9, 9, 8)), (row_major(slice_), (9, 9, 9)))
    ]
    _score(score, named)
    improved = []
    for entry in [*entries[:starts], *(named[:1] if starts else [])]:
        if slice_.num_devices <= SMALL_DEVICES:
            result = refine(score, entry.devices)
        else:
            result = refine(score, entry.devices, neighbours=LARGE_NEIGHBOURS, rounds=LARGE_ROUNDS)
        scored += result.scored
        if result.swaps:
            text = f"{entry.description}; {result.swaps} exchange{'s' if result.swaps > 1 else ''} of devices"
            complexity = (entry.complexity[0] + 10 * result.swaps, *entry.complexity[1:])
            improved.append(_Entry(result.devices, result.step_s, complexity, text))
    if starts and slice_.num_devices <= FEW_DEVICES:
        everything = every_placement(slice_, symmetric=symmetric)
        times = score(everything)
        scored += len(times)
        first = int(times.argmin())
        text = "in order " + " ".join(_place(slice_, device) for device in everything[first].tolist())
        improved.append(_Entry(everything[first], float(times[first]), (99, 9, 9), text))
    best = _distinct(canon, sorted([*entries[: 4 * keep], *named, *improved], key=_order), keep)
    best = [entry for entry in best if math.isfinite(entry.step_s)] or best[:1]
    default, plain = named
    return RankedPlacements(
        best=tuple(_ranked(entry) for entry in best),
        default=_ranked(default),
        row_major=_ranked(plain),
        worst=_ranked(worst),
        count=count,
        refused=count - len(runs),
        scored=scored,
    )


def _in_order(ranker: Ranker) -> RankedPlacements:
    """Returns the one placement of devices without links: any other is the same."""
    devices = tuple(range(ranker.slice_.num_devices))
    only = RankedPlacement(
        placement=Placement(devices=devices, description="in order"),
        step_s=float(ranker.step_s(np.array([devices]))[0]),
    )
    return RankedPlacements(best=(only,), default=only, row_major=only, worst=only, count=1, scored=1)


def routing_classes(ranker: Ranker) -> tuple[RankedPlacement, ...]:
    """Returns the fastest structured placement of every class that compiles to a program of its own, fastest first.

    There is one class but on v5e slices of more than 16 chips, where exchanges and permutes with and without direct
    routes are different programs. To rank all placements there, compile under each of these and rank with it as `like`.
    Empty if no structured placement compiles.
    """
    canon = Canon(ranker.slice_, ranker.patterns, symmetric=not ranker.network.degraded)
    entries = _structured(ranker, canon, ranker.step_s)
    entries = sorted((entry for entry in entries if math.isfinite(entry.step_s)), key=_order)
    if not entries:
        return ()
    direct = ranker.direct(np.stack([entry.devices for entry in entries])).tolist()
    first: dict[tuple[bool, ...], _Entry] = {}
    for entry, answers in zip(entries, direct, strict=True):
        first.setdefault(tuple(answers), entry)
    return tuple(_ranked(entry) for entry in first.values())


def _scorer(ranker: Ranker, like: Placement | None) -> Score:
    if like is None or not is_limited(ranker.slice_):
        return ranker.step_s
    wanted = ranker.direct(np.asarray([like.devices]))

    def score(placements: Ints) -> Floats:
        same = (ranker.direct(placements) == wanted).all(axis=1)
        return np.where(same, ranker.step_s(placements), np.inf)

    return score


def _place(slice_: Slice, device: int) -> str:
    core = f"/{slice_.core(device)}" if slice_.cores > 1 else ""
    return ",".join(map(str, slice_.coords(device))) + core


def _order(entry: _Entry) -> tuple[float, tuple[int, int, int], int, str]:
    # Times that differ by rounding only are equal, so that the simplest description decides.
    return float(f"{entry.step_s:.9e}"), entry.complexity, len(entry.description), entry.description


def _ranked(entry: _Entry) -> RankedPlacement:
    placement = Placement(devices=tuple(entry.devices.tolist()), description=entry.description)
    return RankedPlacement(placement=placement, step_s=entry.step_s)


def _score(score: Score, entries: Sequence[_Entry]) -> None:
    if entries:
        times = score(np.stack([entry.devices for entry in entries]))
        for entry, time in zip(entries, times.tolist(), strict=True):
            entry.step_s = time


def _distinct(canon: Canon, entries: Sequence[_Entry], keep: int) -> list[_Entry]:
    keys = canon.keys(np.stack([entry.devices for entry in entries])).tolist()
    seen: set[int] = set()
    out = []
    for entry, key in zip(entries, keys, strict=True):
        if key not in seen:
            seen.add(key)
            out.append(entry)
    return out[:keep]


def ordered_axes(ranker: Ranker) -> frozenset[str]:
    """Returns the mesh axes along which the order inside a group matters: to permutes, and to rings in listed order."""
    layout = ranker.layout
    out: set[str] = set()
    for pattern in ranker.patterns:
        listed = pattern.flow is Flow.RING and ranker.slice_.generation_name not in TOPOLOGY_AWARE
        if pattern.flow is Flow.PERMUTE or listed:
            members = np.asarray(pattern.members)
            positions = np.stack(np.unravel_index(members, layout.shape))
            moves = (positions != positions[..., :1]).any(axis=(1, 2))
            out.update(name for name, moved in zip(layout.axis_names, moves, strict=True) if moved)
    return frozenset(out)


def _structured(ranker: Ranker, canon: Canon, score: Score) -> list[_Entry]:
    ordered = ordered_axes(ranker)
    found: dict[int, _Entry] = {}
    images = None if not ranker.network.degraded else symmetries(ranker.slice_).astype(np.int64)
    every = structures(ranker.slice_, ranker.layout, ordered)
    few = list(islice(every, MOST_STRUCTURES + 1))
    if len(few) <= MOST_STRUCTURES:
        _add(score, canon, few, images, found)
        return list(found.values())
    plain = structures(ranker.slice_, ranker.layout, frozenset())
    shapes: dict[int, Structure] = {}
    _add(score, canon, plain, images, found, shapes)
    for key in sorted(found, key=lambda key: _order(found[key]))[:WALKED]:
        chosen = shapes[key]
        walked = (
            s
            for s in structures(ranker.slice_, ranker.layout, ordered)
            if s.factors == chosen.factors and s.strides == chosen.strides
        )
        _add(score, canon, walked, images, found)
    return list(found.values())


def _add(
    score: Score,
    canon: Canon,
    candidates: Iterable[Structure],
    images: Ints | None,
    found: dict[int, _Entry],
    shapes: dict[int, Structure] | None = None,
) -> None:
    """Scores candidates that are new and keeps the simplest of those that are the same."""
    stream = iter(candidates)
    while batch := list(islice(stream, BATCH)):
        devices = np.stack([structure.devices for structure in batch])
        origin = np.arange(len(batch))
        if images is not None:  # where links differ, turned and mirrored placements differ too
            devices = images[:, devices].reshape(-1, devices.shape[1])
            origin = np.tile(origin, len(images))
        fresh: list[_Entry] = []
        for key, row, index in zip(canon.keys(devices).tolist(), devices, origin.tolist(), strict=True):
            structure = batch[index]
            known = found.get(key)
            if known is None:
                found[key] = entry = _Entry(row, 0.0, structure.complexity, structure.description)
                fresh.append(entry)
                if shapes is not None:
                    shapes[key] = structure
            elif (structure.complexity, len(structure.description), structure.description) < (
                known.complexity,
                len(known.description),
                known.description,
            ):
                known.devices, known.complexity, known.description = row, structure.complexity, structure.description
        _score(score, fresh)
