"""Compiled HLO text into a `Program`.

The text is the schedule, so its order is kept. Copies that the compiler runs beside the schedule (``copy-start`` into
on-chip memory and the like) cost nothing where other work stands between their start and their end, and count as a copy
where the schedule waits for them at once. Operations between two events (a collective, the start or end of one, a loop,
a kernel) run one after the other whatever their order, so those of one kind are merged; the ones that stay on chip are
kept apart from the ones that use HBM, because they are bound by different things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from adapters.jax.hlo.collectives import (
    Scope,
    chain,
    collective,
    dcn_collective,
    is_collective,
    is_dcn,
    rendezvous,
)
from adapters.jax.hlo.compute import compute
from adapters.jax.hlo.loops import Frame, trip_count
from adapters.jax.hlo.text import Computation, Instruction, parse
from adapters.jax.hlo.traffic import copied
from tuner.errors import InvalidValue
from tuner.program.program import Collective, Compute, ComputeKind, Done, Loop, Memory, Node, Program, Start


def read_program(text: str, devices: int, memory: Memory | None) -> Program:
    """Reads the text of a module compiled for TPU.

    Args:
        text: ``compiled.as_text()``, scheduled; jax 0.10 to 0.12.
        devices: devices that run it, all slices together.
        memory: what the compiler says of it, or None if it says nothing.

    Raises InvalidValue if the text is not that of a scheduled module, or if a loop's trip count depends on data.
    """
    module = parse(text)
    scope = Scope(module=module, devices=devices)
    schedule = _Schedule(scope, Frame(computation=module[module.entry])).read()
    return Program(devices=devices, schedule=merged(schedule), memory=memory)


class _Schedule:
    """Nodes of one computation."""

    def __init__(self, scope: Scope, frame: Frame) -> None:
        self._scope = scope
        self._frame = frame
        self._nodes: list[Node] = []
        self._open: dict[str, str] = {}  # what an end refers to -> name of the collective that was started
        self._copies: dict[str, int] = {}  # start of a copy -> number of nodes before it
        self._ready: dict[str, Instruction] = {}  # calls beside the schedule that have no operands yet

    @property
    def _computation(self) -> Computation:
        return self._frame.computation

    def read(self) -> list[Node]:
        for instruction in self._computation.instructions.values():
            self._readers.get(instruction.opcode, _Schedule._other)(self, instruction)
        return self._nodes

    def _while(self, instruction: Instruction) -> None:
        trips = trip_count(self._scope.module, instruction, self._frame)
        body = instruction.called("body")
        assert body is not None
        if trips is None:
            raise InvalidValue(
                f"loop {instruction.name!r} runs as often as its data says; only a fixed trip count can be predicted"
            )
        inside = Frame(computation=self._scope.module[body], caller=self._frame, call=instruction, loop=True)
        nodes = merged(_Schedule(self._scope, inside).read())
        if trips and nodes:
            self._nodes.append(Loop(name=instruction.name, trips=trips, body=nodes))

    def _call(self, instruction: Instruction) -> None:
        called = instruction.called("to_apply") or instruction.called("calls")
        if called is not None:
            inside = Frame(computation=self._scope.module[called], caller=self._frame, call=instruction)
            self._nodes += _Schedule(self._scope, inside).read()

    def _conditional(self, instruction: Instruction) -> None:
        branches = [
            _Schedule(self._scope, Frame(computation=self._scope.module[branch])).read()
            for branch in instruction.branches
        ]
        self._nodes += max(branches, key=_weight, default=[])

    def _fusion(self, instruction: Instruction) -> None:
        called = instruction.called("calls")
        assert called is not None
        inside = self._scope.module[called]
        found = [inner for inner in inside.instructions.values() if is_collective(inner)]
        if not found:
            return self._compute(instruction)
        chained = {chain(inner): inner for inner in found if chain(inner)}
        if not chained:
            for inner in found:
                self._nodes.append(collective(self._scope, inside, inner, outer=instruction))
            return None
        starts, ends = _fused_ends(inside, "AsyncCollectiveStart"), _fused_ends(inside, "AsyncCollectiveDone")
        for key in starts:
            started = replace(collective(self._scope, inside, chained[key], outer=instruction), asynchronous=True)
            self._open[key] = started.name
            self._nodes.append(Start(collective=started))
        if not starts and not ends:
            self._compute(instruction)
        for key in ends:
            self._end(key)
        return None

    def _async(self, instruction: Instruction) -> None:
        called = instruction.called("calls")
        inside = self._scope.module[called] if called is not None else None
        found = [] if inside is None else [inner for inner in inside.instructions.values() if is_collective(inner)]
        if inside is None or not found:
            return self._start_copy(instruction)
        started = replace(collective(self._scope, inside, found[0], outer=instruction), asynchronous=True)
        self._open[instruction.name] = started.name
        self._nodes.append(Start(collective=started))
        return None

    def _call_start(self, instruction: Instruction) -> None:
        """A call beside the schedule, on a sparse core of v7x; without operands it only gets ready."""
        if instruction.operands:
            self._launch(instruction, instruction)
        else:
            self._ready[instruction.name] = instruction

    def _call_update(self, instruction: Instruction) -> None:
        call = self._ready.pop(instruction.operands[0], None)
        if call is None:
            self._update(instruction)
        else:
            self._launch(call, instruction)

    def _launch(self, call: Instruction, at: Instruction) -> None:
        carried = self._carried(call)
        if carried is None:
            return self._start_copy(at)
        started = replace(collective(self._scope, *carried, outer=call), asynchronous=True)
        self._open[at.name] = started.name
        self._nodes.append(Start(collective=started))
        return None

    def _carried(self, call: Instruction) -> tuple[Computation, Instruction] | None:
        """Returns the collective that a call runs, however deep, with its computation."""
        called = call.called("to_apply") or call.called("calls")
        inside = None if called is None else self._scope.module[called]
        for inner in inside.instructions.values() if inside is not None else ():
            if is_collective(inner):
                assert inside is not None
                return inside, inner
            if inner.opcode == "call-start" and (found := self._carried(inner)) is not None:
                return found
        return None

    def _update(self, instruction: Instruction) -> None:
        source = instruction.operands[0]
        if source in self._open:
            self._open[instruction.name] = self._open.pop(source)
        if source in self._copies:
            self._copies[instruction.name] = self._copies.pop(source)

    def _transfer(self, instruction: Instruction) -> None:
        key = rendezvous(instruction)
        if not is_dcn(instruction) or key in self._open:
            return
        sides = [
            other for other in self._computation.instructions.values() if is_dcn(other) and rendezvous(other) == key
        ]
        send = next((side for side in sides if side.opcode == "send"), None)
        receive = next((side for side in sides if side.opcode == "recv"), None)
        if send is not None:
            started = dcn_collective(self._computation, send, receive)
            self._open[key] = started.name
            self._nodes.append(Start(collective=started))

    def _received(self, instruction: Instruction) -> None:
        source = self._computation.instructions[instruction.operands[0]]
        if is_dcn(source):
            self._end(rendezvous(source))

    def _other(self, instruction: Instruction) -> None:
        if is_collective(instruction):
            found = collective(self._scope, self._computation, instruction)
            if found.asynchronous:
                self._open[instruction.name] = found.name
            self._nodes.append(Start(collective=found) if found.asynchronous else found)
        elif instruction.opcode.endswith("-start"):
            self._start_copy(instruction)
        elif instruction.opcode.endswith("-done"):
            self._done(instruction)
        else:
            self._compute(instruction)

    def _start_copy(self, instruction: Instruction) -> None:
        self._copies[instruction.name] = len(self._nodes)

    def _done(self, instruction: Instruction) -> None:
        source = instruction.operands[0]
        if source in self._open:
            self._end(source)
        elif source in self._copies and not _weight(self._nodes[self._copies.pop(source) :]):
            hbm, vmem = copied(self._computation, source, instruction)
            self._nodes.append(Compute(name=instruction.name, kind=ComputeKind.COPY, bytes=hbm, vmem_bytes=vmem))

    def _end(self, key: str) -> None:
        # An end without its start belongs to a start in another trip of the loop, which ends with its own trip.
        if key in self._open:
            self._nodes.append(Done(name=self._open.pop(key)))

    def _compute(self, instruction: Instruction) -> None:
        operation = compute(self._scope.module, self._computation, instruction)
        if operation is not None:
            self._nodes.append(operation)

    _readers: dict[str, Callable[[_Schedule, Instruction], None]] = {
        "while": _while,
        "call": _call,
        "conditional": _conditional,
        "fusion": _fusion,
        "async-start": _async,
        "async-update": _update,
        "call-start": _call_start,
        "call-update": _call_update,
        "send": _transfer,
        "recv": _transfer,
        "recv-done": _received,
        "send-done": lambda self, instruction: None,
    }


def merged(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Joins operations of one kind between events; kernels are events of their own."""
    out: list[Node] = []
    pending: dict[tuple[ComputeKind, bool, bool], list[Compute]] = {}

    def flush() -> None:
        out.extend(_joined(group) for group in pending.values())
        pending.clear()

    for node in nodes:
        if isinstance(node, Compute) and node.kind is not ComputeKind.KERNEL:
            pending.setdefault((node.kind, node.bytes == 0, node.cycles is None), []).append(node)
        else:
            flush()
            out.append(node)
    flush()
    return tuple(out)


def _joined(group: list[Compute]) -> Compute:
    first = group[0]
    if len(group) == 1:
        return first
    return Compute(
        name=f"{first.name} and {len(group) - 1} more",
        kind=first.kind,
        flops=sum(each.flops for each in group),
        bytes=sum(each.bytes for each in group),
        vmem_bytes=sum(each.vmem_bytes for each in group),
        cycles=None if first.cycles is None else sum(each.cycles or 0 for each in group),
    )


def _fused_ends(computation: Computation, target: str) -> list[str]:
    """Chains of the collectives that a fusion starts or ends, as `target` says."""
    out = []
    for instruction in computation.instructions.values():
        if instruction.opcode == "custom-call" and f'custom_call_target="{target}"' in instruction.attributes:
            operands = [computation.instructions[name] for name in instruction.operands]
            out += [chain(operand) for operand in operands if is_collective(operand)]
    return out


def _weight(nodes: Iterable[Node]) -> float:
    """A rough size of what runs, to tell something from nothing and a long branch from a short one."""
    total = 0.0
    for node in nodes:
        match node:
            case Loop():
                total += node.trips * _weight(node.body)
            case Collective():
                total += node.operand_bytes
            case Compute():
                total += (node.cycles or 0) + node.bytes + node.flops
            case _:
                pass
    return total
