"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tuner.errors import InvalidValue
from tuner.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from tuner.network.cost import Degraded
    from tuner.plans.plan import Constraints

F = TypeVar("F", bound=Callable[..., Any])

database = click.option(
    "--db",
    "db",
    envvar="MESHWRIGHT_DATABASE_URL",
    metavar="URL",
    help="Database: a file, sqlite:///PATH or postgresql://... [default: a file in the user's data directory]",
)
output_format = click.option(
    "-f", "--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Output."
)


class Bytes(click.ParamType[int]):
    """A number of bytes with a unit, such as ``2GiB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns bytes; fails naming what is legal."""
        try:
            return parse_bytes(value)
        except InvalidValue as error:
            self.fail(str(error), param, ctx)


class Seconds(click.ParamType[float]):
    """A time with a unit, such as ``60s`` or ``2min``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns seconds; fails naming what is legal."""
        try:
            return parse_seconds(value)
        except InvalidValue as error:
            self.fail(str(error), param, ctx)


class Link(click.ParamType["Degraded"]):
    """A link that does not run at its full rate, such as ``0,0:1,0=0.5``."""

    name = "link"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Degraded:
        """Returns the link; fails with an example."""
        from tuner.network.cost import Degraded

        if isinstance(value, Degraded):
            return value
        try:
            return Degraded.parse(str(value))
        except InvalidValue as error:
            self.fail(str(error), param, ctx)


links = click.option(
    "--link",
    "links",
    type=Link(),
    multiple=True,
    metavar="END:END=SHARE",
    help="A link that keeps this share of its rate, 0 if it is missing: 0,0:1,0=0.5. May be repeated.",
)


def constraints(reserve_hbm: int, links: tuple[Degraded, ...]) -> Constraints:
    """Returns the constraints that these options state."""
    from tuner.plans.plan import Constraints

    return Constraints(reserve_hbm_bytes=reserve_hbm, links=tuple(map(str, links)))


slice_name = click.option(
    "--slice", "slice_name", required=True, metavar="NAME", help="For example v5e-2x4 or v5litepod-8."
)
reserve_hbm = click.option("--reserve-hbm", type=Bytes(), default=0, help="HBM that must stay free, for example 2GiB.")


def workload(function: F) -> F:
    """Adds the argument MODEL and the options that say which of its workloads is meant."""
    function = click.option("--no-guidance", is_flag=True, help="Distilled variants: one pass instead of two.")(
        function
    )
    function = click.option(
        "--videos", type=click.IntRange(min=1), default=1, show_default=True, help="Videos at once."
    )(function)
    function = click.option("--shape", metavar="WxHxF", default="", help="Width, height and frames.")(function)
    return click.argument("model")(function)


def parameters(shape: str, videos: int, no_guidance: bool) -> dict[str, Any]:
    """Returns the parameters of a workload spec, leaving out what is at its default."""
    chosen: dict[str, Any] = {"shape": shape} if shape else {}
    if videos != 1:
        chosen["videos"] = videos
    if no_guidance:
        chosen["guidance"] = False
    return chosen


def variant(videos: int, no_guidance: bool) -> str:
    """Returns the variant part of a workload's name for these options."""
    parts = [f"videos={videos}"] if videos != 1 else []
    return ",".join([*parts, "no-guidance"] if no_guidance else parts)


def require_slice_name(text: str) -> str:
    """Returns the canonical name of a slice. Raises UnknownName or InvalidValue for what is none."""
    from tuner.slices.names import parse_slice

    if not text:
        raise InvalidValue("--slice is missing; for example --slice v5e-2x4")
    return parse_slice(text).name
