"""Legality, defaults and lowering of the Wan workloads. Numbers in names are of public bug reports."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from adapters.models.registry import resolve
from adapters.models.wan.workload import WanWorkload
from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.layouts.space import enumerate_layouts
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason
from tuner.slices.slice import Slice


def workload(model: str = "wan2.1-t2v-1.3b", shape: str = "832x480x81", **parameters: object) -> WanWorkload:
    built = resolve(WorkloadSpec(model=model, parameters={"shape": shape, **parameters}))
    assert isinstance(built, WanWorkload)
    return built


def layout_of(work: WanWorkload, weights: str = "replicated", blocks: str = "512,512,512", **sizes: int) -> Layout:
    axes = {dimension.name: sizes.get(dimension.name, 1) for dimension in work.space.dimensions}
    return Layout.of(axes, {"weights": weights, "blocks": blocks})


def refused(work: WanWorkload, layout: Layout) -> Rejection:
    rejection = work.verdict(layout)
    assert rejection is not None
    return rejection


V5E_8 = Slice(generation_name="v5e", shape=(2, 4), wrap=(False, False))


class TestLegality:
    @pytest.mark.parametrize(
        ("model", "sizes", "said"),
        [
            ("wan2.1-t2v-1.3b", {"ulysses": 8}, "12 attention heads do not divide over ulysses=8"),
            ("wan2.1-t2v-1.3b", {"tensor": 8}, "12 attention heads do not divide over tensor=8"),
            ("wan2.1-t2v-14b", {"ulysses": 16}, "40 attention heads do not divide over ulysses=16"),
            ("wan2.1-t2v-14b", {"ulysses": 8, "tensor": 2}, "over ulysses=8 x tensor=2 (16 parts)"),
        ],
    )
    def test_heads_that_do_not_divide_list_valid_sizes_581_265(
        self, model: str, sizes: dict[str, int], said: str
    ) -> None:
        work = workload(model)
        rejection = refused(work, layout_of(work, **sizes))
        assert rejection.reason is RejectReason.INDIVISIBLE
        assert said in rejection.detail
        heads = work.preset.config.heads
        valid = [size for size in range(1, heads + 1) if heads % size == 0]
        assert f"valid sizes are {', '.join(map(str, valid))}" in rejection.detail
        assert rejection.numbers["size"] == heads

    def test_ring_and_context_together(self) -> None:
        work = workload()
        rejection = refused(work, layout_of(work, ring=2, context=4))
        assert rejection.reason is RejectReason.ILLEGAL_OPTIONS
        assert "ring=2" in rejection.detail

    def test_guidance_halves_without_guidance(self) -> None:
        work = workload(guidance=False)
        layout = Layout.of(dict(layout_of(work, ulysses=4).axes) | {"cfg": 2}, {"weights": "replicated"})
        assert "guidance is off" in refused(work, layout).detail

    def test_videos_that_do_not_divide(self) -> None:
        work = workload(videos=3)
        assert "3 videos do not divide over data=2" in refused(work, layout_of(work, data=2)).detail

    @pytest.mark.parametrize(
        ("weights", "sizes", "said"),
        [
            ("context", {"ulysses": 4}, "names context of size 1"),
            ("cfg+ulysses", {"ulysses": 4}, "names cfg of size 1"),
            ("all", {"ulysses": 4}, "needs two or more"),
            ("cfg+ulysses", {"cfg": 2, "ulysses": 4}, "legal: 'all'"),
            ("tensor", {"tensor": 4}, "legal: replicated"),
            ("ulysses+cfg", {"cfg": 2, "ulysses": 4}, "legal: replicated"),
        ],
    )
    def test_ways_to_keep_weights(self, weights: str, sizes: dict[str, int], said: str) -> None:
        work = workload()
        rejection = refused(work, layout_of(work, weights=weights, **sizes))
        assert rejection.reason is RejectReason.ILLEGAL_OPTIONS
        assert said in rejection.detail

    def test_every_argument_divides_in_every_legal_layout_27808(self) -> None:
        work = workload(shape="480x832x81", videos=2)
        seen = 0
        for layout in enumerate_layouts(work.space, 16, work.verdict):
            if isinstance(layout, Rejection):
                continue
            seen += 1
            mesh = jax.sharding.AbstractMesh(layout.shape, layout.axis_names)
            for leaf in jax.tree.leaves(work.step(layout, mesh, kernels=False).arguments):
                leaf.sharding.shard_shape(leaf.shape)  # raises where a dimension does not divide
        assert seen > 100

    def test_an_illegal_layout_builds_no_step(self) -> None:
        work = workload()
        layout = layout_of(work, ulysses=8)
        mesh = jax.sharding.AbstractMesh(layout.shape, layout.axis_names)
        with pytest.raises(InvalidValue, match="valid sizes are 1, 2, 3, 4, 6, 12"):
            work.step(layout, mesh, kernels=False)


@pytest.mark.parametrize("shape", ["832x480x81", "1280x720x81"])
@pytest.mark.parametrize("sizes", [{"ring": 16}, {"context": 16}, {"context": 32}, {"ring": 4, "ulysses": 4}])
def test_tokens_that_do_not_divide_are_padded_and_trimmed_471_12568(shape: str, sizes: dict[str, int]) -> None:
    work = workload("wan2.1-t2v-14b", shape)
    layout = layout_of(work, **sizes)
    assert work.verdict(layout) is None
    mesh = jax.sharding.AbstractMesh(layout.shape, layout.axis_names)
    step = work.step(layout, mesh, kernels=False)
    out = jax.eval_shape(step.function, *step.arguments)
    assert out.shape == step.arguments[1].shape == (1, 16, *work.shape.latent)


@pytest.mark.parametrize(
    ("model", "sizes", "weights"),
    [
        ("wan2.1-t2v-1.3b", {"cfg": 2, "ulysses": 4}, "replicated"),
        ("wan2.1-t2v-1.3b", {"cfg": 2, "context": 4}, "context"),
        ("wan2.1-t2v-1.3b", {"ring": 4, "tensor": 2}, "ring"),
        ("wan2.1-t2v-1.3b", {"cfg": 2, "ring": 2, "ulysses": 2}, "all"),
        ("wan2.1-i2v-14b", {"ulysses": 4, "tensor": 2}, "ulysses"),
    ],
)
@pytest.mark.parametrize("kernels", [False, True])
def test_steps_lower_for_tpu(model: str, sizes: dict[str, int], weights: str, kernels: bool) -> None:
    work = workload(model)
    layout = layout_of(work, weights=weights, **sizes)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(layout.shape), layout.axis_names)
    text = work.step(layout, mesh, kernels=kernels).lower().as_text()
    assert ("tpu_custom_call" in text) is kernels
    assert text.count("stablehlo.while") == 1
    assert ("applies stablehlo.maximum across" in text) is not kernels  # the softmax of plain attention


def test_a_deployment_of_today_is_baseline_a() -> None:
    work = workload("wan2.1-t2v-14b")
    for slice_ in (V5E_8, Slice(generation_name="v5e", shape=(16, 16), wrap=(True, True))):
        layout = work.baselines(slice_)["A"]
        assert layout.devices == slice_.num_devices
        assert (layout.size("cfg"), layout.size("context")) == (2, slice_.num_devices // 2)
        assert (layout.option("weights"), layout.option("blocks")) == ("context", "512,512,512")
        assert work.verdict(layout) is None
    unguided = workload(guidance=False)
    assert unguided.baselines(V5E_8)["A"].size("context") == 8


def test_blocks_that_are_tried_fit_and_the_longest_are_for_generations_that_take_them() -> None:
    work = workload()
    layout = layout_of(work, cfg=2, ulysses=4)
    v6e = Slice(generation_name="v6e", shape=(2, 4), wrap=(False, False))
    on_v5e, on_v6e = ([other.option("blocks") for other in work.tuned(layout, s)] for s in (V5E_8, v6e))
    assert "2048,2048,1024" not in on_v5e  # CompileTimeScopedVmemOom there
    assert "2048,2048,1024" in on_v6e
    assert len(on_v5e) == len(set(on_v5e)) > 3
    assert on_v5e[0] != "512,512,512"
    assert set(on_v5e) <= set(work.space.tuned[0].values)


def test_the_identity_tells_apart_what_plans_are_for() -> None:
    variants = [
        workload(),
        workload("wan2.1-t2v-14b"),
        workload("wan2.2-t2v-a14b-high"),
        workload("wan2.2-t2v-a14b-low"),
        workload("wan2.1-i2v-14b"),
        workload(shape="480x832x81"),
        workload(videos=2),
        workload(guidance=False),
        workload(dtype="float32"),
    ]
    assert len({tuple(sorted(work.identity.items())) for work in variants}) == len(variants)
    assert len({work.name for work in variants}) == len(variants)
    assert variants[0].name == "wan2.1-t2v-1.3b@832x480x81"
    assert variants[-3].name == "wan2.1-t2v-1.3b@832x480x81+videos=2"
    assert variants[-2].name == "wan2.1-t2v-1.3b@832x480x81+no-guidance"
    assert variants[-1].name == "wan2.1-t2v-1.3b@832x480x81+float32"
