"""A diffusers checkpoint gives the outputs that PyTorch diffusers 0.42.1 gave for it in float32."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from adapters.models.wan.axes import UNSHARDED
from adapters.models.wan.checkpoint import load
from adapters.models.wan.config import WanConfig
from adapters.models.wan.tokens import Blocks, Tokens
from adapters.models.wan.transformer import Transformer, unpatchify
from tuner.errors import InvalidValue

ASSETS = Path(__file__).parents[2] / "assets"


@pytest.mark.parametrize("blocks", ["8,8,8", "16,32,16"])
@pytest.mark.parametrize("kind", ["t2v", "i2v"])
def test_output_equals_the_reference(kind: str, blocks: str) -> None:
    config, params = load(ASSETS / f"wan_tiny_{kind}", dtype=jnp.float32, text_tokens=16)
    reference = np.load(ASSETS / f"wan_tiny_{kind}" / "io.npz")
    hidden = reference["hidden_states"]
    frames, rows, columns = hidden.shape[2:]
    grid = (frames, rows // 2, columns // 2)
    tokens = Tokens.split(frames * rows * columns // 4, UNSHARDED, Blocks.parse(blocks))
    transformer = Transformer(config=config, grid=grid, tokens=tokens)
    image = reference["encoder_hidden_states_image"] if kind == "i2v" else None

    @jax.jit
    def run(latents, timestep, text, image):  # type: ignore[no-untyped-def]
        flow = transformer(params, latents, timestep, text, image)
        return unpatchify(jax.vmap(tokens.whole)(flow), grid)

    for i in range(2):  # each with a timestep of its own
        part = slice(i, i + 1)
        out = run(
            hidden[part],
            reference["timestep"][i],
            reference["encoder_hidden_states"][part],
            None if image is None else image[part],
        )
        expected = reference["output"][part]
        assert np.linalg.norm(out - expected) <= 1e-5 * np.linalg.norm(expected)
        assert np.abs(out - expected).max() <= 1e-5 * np.abs(expected).max()


def test_dtypes_of_a_loaded_checkpoint() -> None:
    _, params = load(ASSETS / "wan_tiny_t2v", text_tokens=16)
    assert params["blocks"]["ffn"]["up"]["kernel"].dtype == jnp.bfloat16
    for exact in (
        params["scale_shift_table"],
        params["blocks"]["norm2"]["scale"],
        params["time"]["linear_1"]["kernel"],
    ):
        assert exact.dtype == jnp.float32


def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ASSETS / "wan_tiny_t2v", tmp_path / "checkpoint"))


def test_a_checkpoint_in_several_files(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    whole = directory / "diffusion_pytorch_model.safetensors"
    tensors = load_file(whole)
    names = sorted(tensors)
    whole.unlink()
    save_file({name: tensors[name] for name in names[::2]}, directory / "part-1-of-2.safetensors")
    save_file({name: tensors[name] for name in names[1::2]}, directory / "part-2-of-2.safetensors")
    _, one = load(ASSETS / "wan_tiny_t2v", text_tokens=16)
    _, several = load(directory, text_tokens=16)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), one, several))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    path = directory / "diffusion_pytorch_model.safetensors"
    tensors = load_file(path)
    del tensors["blocks.1.attn2.to_v.bias"]
    save_file(tensors, path)
    with pytest.raises(InvalidValue, match=r"blocks\.1\.attn2\.to_v\.bias"):
        load(directory)


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    config = json.loads((directory / "config.json").read_text()) | {"ffn_dim": 64}
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidValue, match=r"blocks/ffn/down/kernel has shape \(2, 128, 96\)"):
        load(directory)


def test_a_directory_without_tensors(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    (directory / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="safetensors"):
        load(directory)


def test_another_architecture_is_refused() -> None:
    document = json.loads((ASSETS / "wan_tiny_t2v" / "config.json").read_text()) | {"qk_norm": "layer_norm"}
    with pytest.raises(InvalidValue, match="qk_norm"):
        WanConfig.from_diffusers(document)
