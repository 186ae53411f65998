"""The Wan denoising step as a workload: its space, what is illegal and why, and what people deploy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp

from adapters.jax.step import Step, source_digest
from adapters.models.wan.axes import CFG, CONTEXT, DATA, RING, TENSOR, ULYSSES, Axes
from adapters.models.wan.blocks import ranked_blocks
from adapters.models.wan.config import PRESETS, Preset, VideoShape, parse_shape
from adapters.models.wan.space import GATHERED_FROM, gathered_axes, wan_space
from adapters.models.wan.step import Request, sharded
from adapters.models.wan.tokens import Blocks
from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.layouts.space import Space
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.slice import Slice

_DTYPES = ("bfloat16", "float32")
"""Of weights and activations."""

_REDUCED_LAYERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WanWorkload:
    """A preset on a video shape.

    Attributes:
        model: the preset's name.
        preset: its dimensions and revision.
        shape: of the video.
        videos: denoised together.
        guidance: whether both guidance halves are run.
        dtype: NumPy name of the dtype of weights and activations.
    """

    model: str
    preset: Preset
    shape: VideoShape
    videos: int = 1
    guidance: bool = True
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        if self.videos < 1:
            raise InvalidValue(f"videos is {self.videos}; legal: whole numbers from 1")
        if self.dtype not in _DTYPES:
            raise InvalidValue(f"dtype is {self.dtype!r}; legal: {', '.join(_DTYPES)}")

    @property
    def name(self) -> str:
        """``model@shape``, with what differs from one video under guidance in the preset's dtype after a ``+``."""
        parts = [f"videos={self.videos}"] if self.videos != 1 else []
        parts += [] if self.guidance else ["no-guidance"]
        parts += [] if self.dtype == self.preset.dtype else [self.dtype]
        return f"{self.model}@{self.shape}" + (f"+{','.join(parts)}" if parts else "")

    @property
    def identity(self) -> Mapping[str, str]:
        """What a plan of this workload is for."""
        return {
            "model": self.model,
            "revision": self.preset.revision,
            "config": self.preset.config.digest,
            "shape": str(self.shape),
            "videos": str(self.videos),
            "guidance": "on" if self.guidance else "off",
            "weights_dtype": self.dtype,
            "latents_dtype": "float32",
        }

    @property
    def source(self) -> str:
        """Digest of this package."""
        return source_digest(Path(__file__).parent.glob("*.py"))

    @property
    def space(self) -> Space:
        """Mesh axes, options and what is tuned on the best layouts."""
        return wan_space(self.preset.config, videos=self.videos, guidance=self.guidance, plain=self.preset.plain)

    @property
    def request(self) -> Request:
        """What the step denoises."""
        return Request(
            config=self.preset.config,
            latent=self.shape.latent,
            videos=self.videos,
            guidance=self.guidance,
            dtype=jnp.dtype(self.dtype),
        )

    def verdict(self, layout: Layout) -> Rejection | None:
        """Returns why a layout is illegal, or None."""
        config, size = self.preset.config, layout.size
        if size(CFG) > 1 and not self.guidance:
            return _illegal(f"cfg={size(CFG)} splits the guidance halves, and guidance is off; legal: cfg=1")
        if size(CFG) > 2:
            return _indivisible("guidance halves", 2, {CFG: size(CFG)})
        if size(RING) > 1 and size(CONTEXT) > 1:
            return _illegal(
                f"ring={size(RING)} and context={size(CONTEXT)} both bring keys to queries; legal: one of them at 1"
            )
        heads = {name: size(name) for name in (ULYSSES, TENSOR)}
        gathered = gathered_axes(str(layout.option("weights", "replicated")))
        if gathered is None:
            return _illegal(
                f"weights={layout.option('weights')!r}; legal: replicated, all, or {', '.join(GATHERED_FROM)}"
            )
        sizes = dict(layout.axes)
        kept, tensor = Axes(sizes=sizes).size(*gathered), {TENSOR: size(TENSOR)}
        over = {f"weights over {'+'.join(gathered)}": kept} if kept > 1 else {}
        return (
            _over("videos", self.videos, {DATA: size(DATA)})
            or _over("attention heads", config.heads, heads)
            or _over("feed-forward channels", config.ffn, tensor)
            or self._weights(layout)
            or _over("hidden channels", config.hidden, over)
            or _over("hidden channels", config.hidden, tensor | over)
            or _over("feed-forward channels", config.ffn, tensor | over)
        )

    def _weights(self, layout: Layout) -> Rejection | None:
        option = str(layout.option("weights", "replicated"))
        named = gathered_axes(option) or ()
        split = tuple(name for name in GATHERED_FROM if layout.size(name) > 1)
        if option == "all":
            if len(split) < 2:
                return _illegal(
                    f"weights='all' needs two or more split axes of {', '.join(GATHERED_FROM)}; this layout splits "
                    f"{', '.join(split) or 'none'}; legal: {' or '.join(repr(name) for name in ('replicated', *split))}"
                )
            return None
        idle = [name for name in named if layout.size(name) == 1]
        if idle:
            return _illegal(f"weights={option!r} names {', '.join(idle)} of size 1; legal: axes that the layout splits")
        if len(named) > 1 and named == split:
            return _illegal(f"weights={option!r} are all split axes of this layout; legal: 'all', the same thing")
        return None

    def step(self, layout: Layout, mesh: jax.sharding.Mesh, *, kernels: bool) -> Step:
        """Builds the step of a legal layout. Raises InvalidValue, with the reason, for an illegal one."""
        rejection = self.verdict(layout)
        if rejection is not None:
            raise InvalidValue(f"{self.name} cannot be laid out as {layout}: {rejection.detail}")
        if tuple(mesh.shape.items()) != layout.axes:
            raise InvalidValue(f"mesh {dict(mesh.shape)} is not that of the layout, {dict(layout.axes)}")
        defaults = self.space.defaults()
        gathered = gathered_axes(str(layout.option("weights", defaults["weights"]))) or ()
        blocks = Blocks.parse(str(layout.option("blocks", defaults["blocks"])))
        return sharded(self.request, mesh, blocks, gathered, kernels=kernels)

    def reduced(self) -> WanWorkload:
        """Returns the same step with two layers on a small video, with the same dimensions to shard: what the answer is
        checked on before anything is timed."""
        layers = min(_REDUCED_LAYERS, self.preset.config.layers)
        shape = min((self.shape, VideoShape(width=128, height=128, frames=5)), key=lambda shape: shape.tokens)
        return replace(
            self, preset=replace(self.preset, config=replace(self.preset.config, layers=layers)), shape=shape
        )

    def baselines(self, slice_: Slice) -> Mapping[str, Layout]:
        """Returns ``A``, today's deployment: guidance over 2, context parallelism over the rest with gathered keys and
        values, weights sharded over the context axis (MaxDiffusion's default rules with its recommended mesh)."""
        cfg = 2 if self.guidance and slice_.num_devices % 2 == 0 else 1
        context = slice_.num_devices // cfg
        axes = dict.fromkeys((dimension.name for dimension in self.space.dimensions), 1) | {CFG: cfg, CONTEXT: context}
        choices = self.space.defaults()
        if not self.preset.plain:
            choices |= {"weights": CONTEXT if context > 1 else "replicated", "blocks": "512,512,512"}
        return {"A": Layout.of(axes, choices)}

    def tuned(self, layout: Layout, slice_: Slice) -> Sequence[Layout]:
        """Returns the layout with every choice of kernel blocks that fits the generation, the fastest by table
        first; on a CPU, where no kernel runs, nothing is tuned."""
        if self.preset.plain or not slice_.generation.has_links:
            return ()
        blocks = ranked_blocks(
            self.preset.config,
            self.shape.tokens,
            Axes(sizes=dict(layout.axes)),
            slice_.generation,
            videos=self.videos,
            halves=self.request.halves,
        )
        return [layout.replace_options(blocks=choice) for choice in blocks]


def build(model: str, parameters: Mapping[str, object]) -> WanWorkload:
    """Builds a preset's workload from the parameters ``shape``, ``videos``, ``guidance`` and ``dtype``.

    Raises InvalidValue for a parameter that is missing, unknown or of the wrong kind.
    """
    legal = ("shape", "videos", "guidance", "dtype")
    unknown = sorted(set(parameters) - set(legal))
    if unknown:
        raise InvalidValue(f"{model} has no parameter {', '.join(unknown)}; it takes {', '.join(legal)}")
    preset = PRESETS[model]
    shape = str(parameters.get("shape", preset.shape))
    if not shape:
        raise InvalidValue(f"{model} needs a shape, for example 832x480x81")
    videos, guidance = parameters.get("videos", 1), parameters.get("guidance", True)
    if not isinstance(videos, int) or isinstance(videos, bool):
        raise InvalidValue(f"videos is {videos!r}; legal: whole numbers from 1")
    if not isinstance(guidance, bool):
        raise InvalidValue(f"guidance is {guidance!r}; legal: true, false")
    return WanWorkload(
        model=model,
        preset=preset,
        shape=parse_shape(shape),
        videos=videos,
        guidance=guidance,
        dtype=str(parameters.get("dtype", preset.dtype)),
    )


def _illegal(detail: str) -> Rejection:
    return Rejection(stage=Stage.ENUMERATE, reason=RejectReason.ILLEGAL_OPTIONS, detail=detail)


def _over(what: str, size: int, over: Mapping[str, int]) -> Rejection | None:
    return None if size % math.prod(over.values()) == 0 else _indivisible(what, size, over)


def _indivisible(what: str, size: int, over: Mapping[str, int]) -> Rejection:
    parts = math.prod(over.values())
    named = " x ".join(f"{name}={count}" for name, count in over.items() if count > 1)
    legal = [divisor for divisor in range(1, size + 1) if size % divisor == 0]
    shown = ", ".join(map(str, legal if len(legal) <= 24 else [*legal[:23], "..."]))
    return Rejection(
        stage=Stage.ENUMERATE,
        reason=RejectReason.INDIVISIBLE,
        detail=f"{size} {what} do not divide over {named} ({parts} parts); valid sizes are {shown}",
        numbers={"size": size, "parts": parts, **over},
    )
