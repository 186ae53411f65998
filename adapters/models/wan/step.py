"""One denoising step: the transformer on both guidance halves, their merge, and an Euler update of flow matching.

The whole step is one `jax.shard_map`, so that every collective is one that was meant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from adapters.jax.step import Step
from adapters.models.wan.axes import CFG, DATA, Axes
from adapters.models.wan.config import WanConfig
from adapters.models.wan.layers import Tree
from adapters.models.wan.parameters import abstract, specs
from adapters.models.wan.tokens import Blocks, Tokens
from adapters.models.wan.transformer import Transformer, unpatchify


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one step denoises.

    Attributes:
        config: dimensions of the transformer.
        latent: latent frames, rows and columns.
        videos: denoised together.
        guidance: whether a prompt and a negative prompt are both run and merged.
        dtype: of weights and activations.
    """

    config: WanConfig
    latent: tuple[int, int, int]
    videos: int
    guidance: bool
    dtype: Any = jnp.bfloat16

    @property
    def grid(self) -> tuple[int, int, int]:
        """Tokens along time, height and width."""
        frames, rows, columns = self.latent
        return frames, rows // 2, columns // 2

    @property
    def real_tokens(self) -> int:
        """Tokens of a video."""
        frames, rows, columns = self.grid
        return frames * rows * columns

    @property
    def halves(self) -> int:
        """Sequences of a video: prompt and negative prompt, or only the prompt."""
        return 2 if self.guidance else 1

    def inputs(self) -> Tree:
        """Returns shapes and dtypes of everything but parameters and latents.

        ``text`` holds the prompt's half first. ``step_size`` is the next noise level minus this one. Image to video
        adds ``condition``, the latent channels that stay (mask and first frame), and ``image``, the image encoder's
        tokens.
        """
        config, scalar = self.config, jax.ShapeDtypeStruct((), jnp.float32)
        text = (self.halves, self.videos, config.text_tokens, config.text_dim)
        tree: Tree = {
            "text": jax.ShapeDtypeStruct(text, self.dtype),
            "timestep": scalar,
            "step_size": scalar,
        }
        if self.guidance:
            tree["guidance_scale"] = scalar
        if config.image_dim is not None:
            condition = (self.videos, config.in_channels - config.out_channels, *self.latent)
            tree["condition"] = jax.ShapeDtypeStruct(condition, jnp.float32)
            tree["image"] = jax.ShapeDtypeStruct((self.videos, config.image_tokens, config.image_dim), self.dtype)
        return tree

    def latents(self) -> jax.ShapeDtypeStruct:
        """Returns shape and dtype of the latents."""
        return jax.ShapeDtypeStruct((self.videos, self.config.out_channels, *self.latent), jnp.float32)


def denoise(
    request: Request, axes: Axes, blocks: Blocks, gathered: tuple[str, ...], *, kernels: bool
) -> Callable[[Tree, jax.Array, Tree], jax.Array]:
    """Returns the step of one shard: ``(params, latents, inputs) -> latents``, all local but the tokens."""
    tokens = Tokens.split(request.real_tokens, axes, blocks)
    transformer = Transformer(
        config=request.config, grid=request.grid, tokens=tokens, gathered=gathered, kernels=kernels
    )

    def step(params: Tree, latents: jax.Array, inputs: Tree) -> jax.Array:
        noisy = latents
        if "condition" in inputs:
            noisy = jnp.concatenate([latents, inputs["condition"]], axis=1)
        halves, videos, *rest = inputs["text"].shape
        text = inputs["text"].reshape(halves * videos, *rest)
        flow = transformer(params, noisy, inputs["timestep"], text, inputs.get("image"))
        flow = axes.gather(flow.reshape(halves, videos, *flow.shape[1:]), CFG, dimension=0)
        if request.guidance:
            prompt, negative = flow
            flow = negative + inputs["guidance_scale"] * (prompt - negative)
        else:
            flow = flow[0]
        flow = unpatchify(jax.vmap(tokens.whole)(flow), request.grid)
        return latents + inputs["step_size"] * flow

    return step


def sharded(request: Request, mesh: Mesh, blocks: Blocks, gathered: tuple[str, ...], *, kernels: bool) -> Step:
    """Returns the step over a mesh, with abstract arguments that carry their shardings."""
    axes = Axes(sizes=dict(mesh.shape))
    videos, halves = axes.active(DATA) or None, axes.active(CFG) or None
    of_input = {
        "text": PartitionSpec(halves, videos),
        "condition": PartitionSpec(videos),
        "image": PartitionSpec(videos),
    }
    inputs = request.inputs()
    in_specs = (
        specs(request.config, axes, gathered),
        PartitionSpec(videos),
        {name: of_input.get(name, PartitionSpec()) for name in inputs},
    )
    function = jax.shard_map(
        denoise(request, axes, blocks, gathered, kernels=kernels),
        mesh=mesh,
        in_specs=in_specs,
        out_specs=PartitionSpec(videos),
        check_vma=False,
    )
    shapes = (abstract(request.config, request.dtype), request.latents(), inputs)
    arguments = jax.tree.map(
        lambda spec, shape: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=NamedSharding(mesh, spec)),
        in_specs,
        shapes,
        is_leaf=lambda x: isinstance(x, PartitionSpec),
    )
    return Step(
        function=function,
        arguments=arguments,
        out_shardings=NamedSharding(mesh, PartitionSpec(videos)),
        donate=(1,),
    )
