"""Dimensions of the Wan transformers, the presets, and the video shapes that they accept.

Source of the dimensions: the ``config.json`` files of the published diffusers checkpoints (``Wan-AI/Wan2.1-T2V-1.3B``,
``-T2V-14B``, ``-I2V-14B-480P``, ``Wan2.2-T2V-A14B``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tuner.canonical import digest
from tuner.errors import InvalidValue

VAE_STRIDE = (4, 8, 8)
"""Video frames, rows and columns of one latent cell. The first frame has a latent frame of its own."""

PATCH = (1, 2, 2)
"""Latent frames, rows and columns of one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WanConfig:
    """Dimensions of one transformer.

    Attributes:
        heads, head_dim: of every attention; the hidden size is their product.
        layers: transformer blocks.
        ffn: width of the feed-forward layer.
        in_channels: latent channels that enter; for image to video, 16 noisy ones and 20 of mask and first frame.
        out_channels: latent channels that are denoised.
        text_dim, text_tokens: of the text encoder's output, padded to a fixed length.
        image_dim: of the image encoder's output for image to video, else None.
        image_tokens: of the image encoder.
        freq_dim: length of the sinusoidal embedding of the timestep.
        eps: of every norm of the blocks and the head.
        eps_image: of the norms of the image embedding.
        rope_theta: base of the rotary embedding.
    """

    heads: int
    head_dim: int
    layers: int
    ffn: int
    in_channels: int = 16
    out_channels: int = 16
    text_dim: int = 4096
    text_tokens: int = 512
    image_dim: int | None = None
    image_tokens: int = 257
    freq_dim: int = 256
    eps: float = 1e-6
    eps_image: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
        return self.heads * self.head_dim

    @property
    def block_weights(self) -> int:
        """Weights of a block that every token is multiplied by: queries, keys, values and outputs, and the
        feed-forward."""
        return 6 * self.hidden**2 + 2 * self.hidden * self.ffn

    @property
    def patch_cells(self) -> int:
        """Latent cells in a token."""
        return PATCH[0] * PATCH[1] * PATCH[2]

    @property
    def digest(self) -> str:
        """SHA-256 of the dimensions."""
        return digest(asdict(self))

    @classmethod
    def from_diffusers(cls, document: Mapping[str, Any], *, text_tokens: int = 512) -> WanConfig:
        """Reads a diffusers ``config.json``. Raises InvalidValue for an architecture that this is not."""
        expected = {"patch_size": list(PATCH), "qk_norm": "rms_norm_across_heads", "cross_attn_norm": True}
        for key, value in expected.items():
            found = document.get(key, value)
            if (list(found) if isinstance(found, tuple) else found) != value:
                raise InvalidValue(f"config.json has {key} = {found!r}; this Wan transformer is built for {value!r}")
        return cls(
            heads=document["num_attention_heads"],
            head_dim=document["attention_head_dim"],
            layers=document["num_layers"],
            ffn=document["ffn_dim"],
            in_channels=document["in_channels"],
            out_channels=document["out_channels"],
            text_dim=document["text_dim"],
            text_tokens=text_tokens,
            image_dim=document.get("image_dim"),
            freq_dim=document["freq_dim"],
            eps=document["eps"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A model by name.

    Attributes:
        config: its dimensions.
        revision: of the weights.
        what: a line about it.
        shape: of the video if none is asked for; empty where one must be.
        dtype: NumPy name of the dtype of weights and activations.
        plain: True to vary the mesh only: weights on every device, default kernel blocks and compiler flags.
    """

    config: WanConfig
    revision: str
    what: str
    shape: str = ""
    dtype: str = "bfloat16"
    plain: bool = False


_T2V_14B = WanConfig(heads=40, head_dim=128, layers=40, ffn=13824)

PRESETS: dict[str, Preset] = {
    "tiny": Preset(
        config=WanConfig(heads=4, head_dim=128, layers=2, ffn=1024, text_dim=128, text_tokens=64),
        revision="1",
        what="the same step, small enough to measure on CPU devices (--slice cpu-8)",
        shape="128x128x5",
        dtype="float32",
        plain=True,
    ),
    "wan2.1-t2v-1.3b": Preset(
        config=WanConfig(heads=12, head_dim=128, layers=30, ffn=8960),
        revision="2.1",
        what="Wan 2.1 text to video, 1.42 billion parameters",
    ),
    "wan2.1-t2v-14b": Preset(config=_T2V_14B, revision="2.1", what="Wan 2.1 text to video, 14.29 billion parameters"),
    "wan2.1-i2v-14b": Preset(
        config=WanConfig(heads=40, head_dim=128, layers=40, ffn=13824, in_channels=36, image_dim=1280),
        revision="2.1",
        what="Wan 2.1 image to video, 16.39 billion parameters",
    ),
    "wan2.2-t2v-a14b-high": Preset(
        config=_T2V_14B, revision="2.2-high-noise", what="Wan 2.2 text to video, the expert of the noisy steps"
    ),
    "wan2.2-t2v-a14b-low": Preset(
        config=_T2V_14B, revision="2.2-low-noise", what="Wan 2.2 text to video, the expert of the last steps"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoShape:
    """Pixels and frames of a video, and what the transformer sees of it."""

    width: int
    height: int
    frames: int

    def __post_init__(self) -> None:
        time, rows, columns = VAE_STRIDE
        row_step, column_step = rows * PATCH[1], columns * PATCH[2]
        nearest = (
            _nearest(self.width, column_step),
            _nearest(self.height, row_step),
            _nearest(self.frames - 1, time, least=0) + 1,
        )
        if nearest != (self.width, self.height, self.frames):
            raise InvalidValue(
                f"shape {self.width}x{self.height}x{self.frames} is not legal: width must divide by {column_step}, "
                f"height by {row_step}, frames - 1 by {time}; the nearest legal shape is {'x'.join(map(str, nearest))}"
            )

    @property
    def latent(self) -> tuple[int, int, int]:
        """Latent frames, rows and columns."""
        time, rows, columns = VAE_STRIDE
        return (self.frames - 1) // time + 1, self.height // rows, self.width // columns

    @property
    def grid(self) -> tuple[int, int, int]:
        """Tokens along time, height and width."""
        frames, rows, columns = self.latent
        return frames // PATCH[0], rows // PATCH[1], columns // PATCH[2]

    @property
    def tokens(self) -> int:
        """Tokens of one video."""
        frames, rows, columns = self.grid
        return frames * rows * columns

    def __str__(self) -> str:
        return f"{self.width}x{self.height}x{self.frames}"


def _nearest(value: int, step: int, *, least: int | None = None) -> int:
    return max(step if least is None else least, (value + step // 2) // step * step)


def parse_shape(text: str) -> VideoShape:
    """Reads ``widthxheightxframes``. Raises InvalidValue, with the nearest legal shape where there is one."""
    parts = text.lower().replace("*", "x").split("x")
    if len(parts) != 3 or not all(part.strip().isdigit() for part in parts):
        raise InvalidValue(f"shape {text!r} is not widthxheightxframes, for example 832x480x81")
    width, height, frames = (int(part) for part in parts)
    return VideoShape(width=width, height=height, frames=frames)
