"""`meshwright models`: what can be tuned by name."""

from __future__ import annotations

import click

from adapters.cli import options, render
from adapters.models.registry import models


@click.command()
@options.output_format
def command(output: str) -> None:
    """List the models that can be tuned by name. Your own goes by package.module:attribute."""
    known = models()
    if output == "json":
        render.document(dict(known))
    else:
        click.echo(render.table([("model", "<"), ("what", "<")], [[name, line] for name, line in known.items()]))
