"""`meshwright slices`: where a model can be tuned for."""

from __future__ import annotations

import math

import click

from adapters.cli import options, render
from tuner.errors import UnknownName
from tuner.slices.generations import GENERATIONS
from tuner.slices.names import accelerator_name, parse_slice
from tuner.slices.shapes import make_slice, note, standard_shapes
from tuner.slices.slice import Slice

_LARGEST = 256


@click.command()
@click.argument("name", required=False)
@click.option("--generation", type=click.Choice(list(GENERATIONS)), help="Only this generation.")
@click.option("--all", "everything", is_flag=True, help=f"Slices of more than {_LARGEST} chips too.")
@options.output_format
def command(name: str | None, generation: str | None, everything: bool, output: str) -> None:
    """List the standard slices, or say what NAME is."""
    slices = [parse_slice(name)] if name else _standard(generation, everything)
    if not slices:
        raise UnknownName("no such slices")
    if output == "json":
        render.document([_document(slice_) for slice_ in slices])
        return
    columns = [
        ("slice", "<"),
        ("accelerator", "<"),
        ("chips", ">"),
        ("devices", ">"),
        ("wraps", "<"),
        ("HBM GiB per device", ">"),
        ("peak bf16 TFLOP/s per device", ">"),
        ("note", "<"),
    ]
    rows = [
        [
            slice_.name,
            accelerator_name(slice_),
            str(slice_.num_chips),
            str(slice_.num_devices),
            _wraps(slice_),
            render.gib(slice_.generation.hbm_bytes),
            f"{slice_.generation.peak_flops / 1e12:.0f}",
            note(slice_),
        ]
        for slice_ in slices
    ]
    click.echo(render.table(columns, rows))


def _standard(generation: str | None, everything: bool) -> list[Slice]:
    names = [generation] if generation else list(GENERATIONS)
    return [
        make_slice(name, shape)
        for name in names
        for shape in standard_shapes(name)
        if everything or math.prod(shape) <= _LARGEST
    ]


def _wraps(slice_: Slice) -> str:
    axes = "".join(axis for axis, closed in zip("xyz", slice_.wrap, strict=False) if closed) or "none"
    return f"{axes} twisted" if slice_.twisted else axes


def _document(slice_: Slice) -> dict[str, object]:
    return {
        "name": slice_.name,
        "accelerator": accelerator_name(slice_),
        "shape": list(slice_.shape),
        "wrap": list(slice_.wrap),
        "twisted": slice_.twisted,
        "chips": slice_.num_chips,
        "devices": slice_.num_devices,
        "hbm_bytes_per_device": slice_.generation.hbm_bytes,
        "note": note(slice_),
    }
