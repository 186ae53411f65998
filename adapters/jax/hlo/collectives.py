"""Collectives in HLO text.

A collective is synchronous where it stands alone, and asynchronous where it is split: into ``-start`` and ``-done``,
into ``async-start`` and ``async-done`` around a computation, or by asynchronous collective fusion. The last prints
the same collective in a fusion that starts it, in every compute fusion that advances it and in a fusion that ends it,
all with one ``channel_id`` and ``chain_id``; only the start counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapters.jax.hlo.groups import Groups, parse_groups, parse_pairs
from adapters.jax.hlo.text import Computation, Instruction, Module
from adapters.jax.hlo.traffic import result_bytes
from tuner.program.program import Collective, CollectiveKind

_KINDS = {
    "all-reduce": CollectiveKind.ALL_REDUCE,
    "all-gather": CollectiveKind.ALL_GATHER,
    "reduce-scatter": CollectiveKind.REDUCE_SCATTER,
    "all-to-all": CollectiveKind.ALL_TO_ALL,
    "ragged-all-to-all": CollectiveKind.ALL_TO_ALL,
    "collective-permute": CollectiveKind.COLLECTIVE_PERMUTE,
}
_WRITTEN = {
    "psum": CollectiveKind.ALL_REDUCE,
    "psum_invariant": CollectiveKind.ALL_REDUCE,
    "pmean": CollectiveKind.ALL_REDUCE,
    "all_gather": CollectiveKind.ALL_GATHER,
    "all_gather_invariant": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "psum_scatter": CollectiveKind.REDUCE_SCATTER,
    "all_to_all": CollectiveKind.ALL_TO_ALL,
    "ppermute": CollectiveKind.COLLECTIVE_PERMUTE,
}
"""The collective that a JAX primitive, the last part of an ``op_name``, asks for."""

_MEGASCALE = "_xla_megascale_transfer_type="


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where collectives are read: the module and the number of devices, which can be a multiple of its partitions."""

    module: Module
    devices: int


def base_opcode(instruction: Instruction) -> str:
    """Returns the opcode without ``-start``."""
    return instruction.opcode.removesuffix("-start")


def is_collective(instruction: Instruction) -> bool:
    """Returns True for a collective or the start of one, not for its end."""
    return base_opcode(instruction) in _KINDS


def collective(
    scope: Scope, computation: Computation, instruction: Instruction, outer: Instruction | None = None
) -> Collective:
    """Returns the collective of an instruction; `outer` is the fusion or asynchronous operation around it, if any.

    The result's size is that of the ``-done`` where there is one, since a ``-start`` returns buffers of both sides.
    """
    kind = _KINDS[base_opcode(instruction)]
    done = next((user for user in computation.users(instruction.name) if user.opcode.endswith("-done")), None)
    result = result_bytes(instruction if done is None or not instruction.opcode.endswith("-start") else done)
    # A ragged all-to-all also takes the buffer to write to, offsets and sizes; how much is sent is known at run time
    # only, at most its whole operand, which makes it a dense one.
    sent = instruction.operands[: 1 if instruction.opcode.startswith("ragged") else None]
    operand = sum(result_bytes(computation.instructions[name]) for name in sent)
    if outer is not None and kind is CollectiveKind.ALL_REDUCE and _keeps_a_shard(computation, instruction):
        # All-reduce-scatter fusion: the emitter sends what a reduce-scatter sends.
        kind, result = CollectiveKind.REDUCE_SCATTER, result_bytes(outer)
    permute = kind is CollectiveKind.COLLECTIVE_PERMUTE
    return Collective(
        name=instruction.name if outer is None else outer.name,
        kind=kind,
        operand_bytes=operand,
        result_bytes=result,
        groups=() if permute else _groups(scope, instruction),
        pairs=_pairs(instruction) if permute else (),
        asynchronous=instruction.opcode.endswith("-start"),
        strategy=_strategy(instruction) or (_strategy(outer) if outer is not None else ""),
        written=_written(instruction, outer, kind),
    )


def chain(instruction: Instruction) -> str:
    """Returns what the parts of one asynchronously fused collective share; empty if it is not fused so."""
    channel, chain_id = instruction.attribute(r"channel_id=(\d+)"), instruction.attribute(r'chain_id="([^"]*)"')
    return "" if chain_id is None else f"{channel}/{chain_id}"


def is_dcn(instruction: Instruction) -> bool:
    """Returns True for a transfer between slices (``send`` or ``recv``)."""
    return instruction.opcode in ("send", "recv") and _MEGASCALE in instruction.attributes


def rendezvous(instruction: Instruction) -> str:
    """Returns the name that the two sides of a transfer between slices share."""
    return instruction.attribute(r'_xla_host_transfer_rendezvous="([^"]*)"') or instruction.name


def dcn_collective(computation: Computation, send: Instruction, receive: Instruction | None) -> Collective:
    """Returns the transfer between slices that a ``send`` and its ``recv`` make; `strategy` is what it does."""
    operand = result_bytes(computation.instructions[send.operands[0]])
    # A recv returns (data, context, token); the context is a scalar.
    result = operand if receive is None else result_bytes(receive)
    return Collective(
        name=send.name,
        kind=CollectiveKind.DCN,
        operand_bytes=operand,
        result_bytes=result,
        groups=_slice_groups(send.attribute(r'_xla_megascale_target="([^"]*)"') or ""),
        asynchronous=True,
        strategy=send.attribute(rf'{_MEGASCALE}"([^"]*)"') or "",
    )


def _groups(scope: Scope, instruction: Instruction) -> Groups:
    position = instruction.attributes.find("replica_groups=")
    partitions = scope.module.partitions
    if position < 0:
        return (tuple(range(partitions)),)
    groups = parse_groups(instruction.attributes[position + len("replica_groups=") :], partitions)
    # Several slices run the program of one, so its groups are repeated for each.
    if scope.devices > partitions and max(map(max, groups)) < partitions and scope.devices % partitions == 0:
        starts = range(0, scope.devices, partitions)
        return tuple(tuple(member + start for member in group) for start in starts for group in groups)
    return groups


def _pairs(instruction: Instruction) -> tuple[tuple[int, int], ...]:
    key = "source_target_pairs="
    position = instruction.attributes.find(key)
    return parse_pairs(instruction.attributes[position + len(key) :]) if position >= 0 else ()


def _slice_groups(target: str) -> Groups:
    """Groups of ``{1,2}x{0:3}``: slices 1 and 2, every device 0 to 3 with its counterparts."""
    match = re.fullmatch(r"\{([\d,:]+)\}x\{([\d,:]+)\}", target)
    if match is None:
        return ()
    slices, positions = _listed(match[1]), _listed(match[2])
    return tuple(tuple((number - slices[0]) * len(positions) + p for number in slices) for p in positions)


def _listed(text: str) -> list[int]:
    out: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition(":")
        out += range(int(first), int(last or first) + 1)
    return out


def _keeps_a_shard(computation: Computation, instruction: Instruction) -> bool:
    root = computation.root
    while root.opcode == "bitcast":
        root = computation.instructions[root.operands[0]]
    return root.opcode == "dynamic-slice" and root.operands[0] == instruction.name


def _strategy(instruction: Instruction) -> str:
    decided = instruction.config.get("collective_algorithm_config", {})
    return str(decided.get("strategy") or decided.get("emitter") or "").removesuffix("Strategy")


def _written(instruction: Instruction, outer: Instruction | None, kind: CollectiveKind) -> str:
    for source in (instruction, outer):
        op_name = source.attribute(r'op_name="([^"]*)"') if source is not None else None
        asked = _WRITTEN.get((op_name or "").rsplit("/", 1)[-1])
        if asked is not None:
            return "" if asked is kind else str(asked)
    return ""
