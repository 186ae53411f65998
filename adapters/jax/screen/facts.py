"""From a graph to what the funnel wants: a `Screened` with the program, its least traffic and its digest."""

from __future__ import annotations

from dataclasses import replace

from adapters.jax.screen.attention import Attention, attentions
from adapters.jax.screen.graph import Block, Branch, Graph, Op, Product, Repeat, Value, prune
from adapters.jax.screen.traffic import alias_bytes, fused_bytes, least_bytes, uses
from tuner.ports import Screened
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Loop, Memory, Node, Program

Blocks = tuple[int, int, int]


def screened(graph: Graph, *, devices: int, digest: str, blocks: Blocks = (0, 0, 0)) -> Screened:
    """Counts a graph; prunes it first. `blocks` are what the layout asks of its attention kernels."""
    prune(graph)
    schedule = _Counter(uses(graph.body, graph.returns), blocks).nodes(graph.body)
    memory = Memory(
        argument_bytes=sum(value.bytes for value in graph.arguments),
        output_bytes=sum(value.bytes for value in graph.returns),
        temp_bytes=0,
        alias_bytes=alias_bytes(graph.arguments, graph.donated, graph.returns),
    )
    return Screened(
        program=Program(devices=devices, schedule=schedule, memory=memory),
        least_bytes=least_bytes(graph.body, graph.arguments, graph.donated, graph.returns),
        digest=digest,
    )


class _Counter:
    def __init__(self, readers: dict[Value, list[Op]], blocks: Blocks) -> None:
        self._readers = readers
        self._blocks = blocks
        self._count = 0

    def nodes(self, block: Block) -> tuple[Node, ...]:
        found = attentions(block, self._readers)
        outputs = {id(attention.output): attention for attention in found}
        scores = {id(attention.scores) for attention in found}
        inside = frozenset().union(*(attention.inside for attention in found))
        nodes: list[Node] = []
        for op in block.ops:
            if id(op) in scores:
                continue
            if id(op) in outputs:
                nodes.append(self._attention(outputs[id(op)]))
            else:
                nodes += self._node(op)
        moved = fused_bytes(block, self._readers, inside)
        if moved:
            nodes.append(Compute(name=self._name("fused"), kind=ComputeKind.MEMORY, bytes=moved))
        return tuple(nodes)

    def _node(self, op: Op) -> tuple[Node, ...]:
        match op.detail:
            case Product(flops=flops):
                moved = sum(value.bytes for value in (*op.operands, *op.results))
                return (Compute(name=self._name(op.kind), kind=ComputeKind.MATMUL, flops=flops, bytes=moved),)
            case Collective() as collective:
                return (self._collective(op, collective),)
            case Repeat() as loop:
                # A loop of unknown length counts once: the least that a useful one does.
                trips = 1 if loop.trips is None else loop.trips
                return (Loop(name=self._name("while"), trips=trips, body=self.nodes(loop.body)),)
            case Branch() as branch:
                return self._cheapest(branch)
        if op.kind == "custom_call":
            moved = sum(value.bytes for value in (*op.operands, *op.results))
            return (Compute(name=self._name(op.kind), kind=ComputeKind.KERNEL, bytes=moved),)
        return ()

    def _attention(self, attention: Attention) -> Compute:
        scores, output = attention.scores, attention.output
        ends = [*scores.operands, *output.operands, *output.results]
        moved = sum(value.bytes for value in dict.fromkeys(ends) if value not in attention.inside)
        name = self._name("attention")
        kernel = replace(attention.kernel, name=name, blocks=self._blocks)
        return Compute(name=name, kind=ComputeKind.KERNEL, flops=attention.flops, bytes=moved, kernel=kernel)

    def _collective(self, op: Op, collective: Collective) -> Collective:
        named = replace(collective, name=self._name(collective.name))
        if collective.kind is not CollectiveKind.ALL_REDUCE or len(op.results) != 1:
            return named
        readers = self._readers.get(op.results[0], [])
        part = -(-op.results[0].bytes // collective.group_size)
        if (
            len(readers) == 1
            and readers[0].kind in ("dynamic_slice", "all_slice")
            and readers[0].results[0].bytes == part
        ):
            # Each device keeps its own part of the sum, which a compiler turns into a reduce-scatter.
            return replace(
                named, kind=CollectiveKind.REDUCE_SCATTER, result_bytes=part, written=str(CollectiveKind.ALL_REDUCE)
            )
        return named

    def _cheapest(self, branch: Branch) -> tuple[Node, ...]:
        """Returns the least that any branch does: the operations of one, the collectives of maybe another."""
        schedules = [self.nodes(block) for block in branch.blocks]
        quiet = min(schedules, key=_received)
        light = min(schedules, key=_flops)
        return (*_only(light, Compute), *_only(quiet, Collective))

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind} #{self._count}"


def _walk(nodes: tuple[Node, ...]) -> Program:
    return Program(devices=1, schedule=nodes)


def _flops(nodes: tuple[Node, ...]) -> float:
    return sum(node.flops * times for node, times in _walk(nodes).walk() if isinstance(node, Compute))


def _received(nodes: tuple[Node, ...]) -> float:
    return _walk(nodes).received_bytes


def _only(nodes: tuple[Node, ...], kind: type) -> tuple[Node, ...]:
    kept: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            kept.append(replace(node, body=_only(node.body, kind)))
        elif isinstance(node, kind):
            kept.append(node)
    return tuple(kept)
