"""`meshwright serve`: lookups over HTTP, and the dashboard."""

from __future__ import annotations

from pathlib import Path

import click

from adapters.cli import options
from tuner.errors import InvalidValue

_SHORTEST_TOKEN = 16
_MOST = 1000
"""Requests at once; one more is told to come back."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port to listen on.")
@click.option("--root-path", default="", metavar="PREFIX", help="Path under which a proxy serves us: /meshwright.")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the token that writes need. Without it the service and its database connection are read-only.",
)
@options.database
def command(host: str, port: int, root_path: str, token_file: Path | None, db: str | None) -> None:
    """Serve lookups and the dashboard over HTTP.

    The service starts while the database is away and answers 503 until it is back.
    """
    import uvicorn

    from adapters.web.app import create_app

    if root_path and not root_path.startswith("/"):
        raise InvalidValue(f"--root-path {root_path!r} must begin with a slash")
    token = None if token_file is None else read_token(token_file)
    app = create_app(db, token=token, root_path=root_path)
    uvicorn.run(
        app,
        host=host,
        port=port,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
        limit_concurrency=_MOST,
    )


def read_token(path: Path) -> str:
    """Returns the token in a file. Raises InvalidValue if there is none or it is too short to be a secret."""
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"token file {path}: {error}") from None
    if len(token) < _SHORTEST_TOKEN:
        raise InvalidValue(f"token file {path} holds {len(token)} characters; at least {_SHORTEST_TOKEN} are needed")
    return token
