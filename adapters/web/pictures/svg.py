"""The little SVG that every picture is made of.

A picture holds no style and no script, so that it may stand in a page under a strict content security policy: elements
carry classes, and ``static/pictures.css`` says what these look like in light and in dark. A file that stands alone gets
the same rules embedded, with their variables resolved, because some viewers know none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from xml.sax.saxutils import escape

EDGE = 16.0
"""Paper around a picture that is a file of its own."""

Value = str | float | int | None

# What XML 1.0 cannot hold, and what turns the direction of the text around it.
_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A finished picture without its frame.

    Attributes:
        width: in units of about one pixel.
        height: in the same.
        title: names the picture.
        description: says in words what it shows, for readers who do not see it.
        body: SVG elements.
        live: whether its parts can be pointed at; if not, it is one image to a screen reader.
    """

    width: float
    height: float
    title: str
    description: str
    body: str
    live: bool = True


def clean(value: str, most: int = 200) -> str:
    """Returns a text that any XML may hold, at most so many characters long: what comes from a database may be hostile.

    >>> clean("a\\x00b")
    'a\\ufffdb'
    """
    short = value if len(value) <= most else value[: most - 1] + "…"
    return _UNPRINTABLE.sub("\ufffd", short)


def number(value: float) -> str:
    """Returns a coordinate with at most one decimal.

    >>> number(3.04), number(-0.01), number(2.5)
    ('3', '0', '2.5')
    """
    text = f"{value:.1f}"
    text = text.removesuffix(".0")
    return "0" if text == "-0" else text


def tag(name: str, content: str = "", /, **attributes: Value) -> str:
    """Returns an element. ``class_`` stands for ``class``, ``a_b`` for ``a-b``; attributes that are None are left out.

    `content` is markup: texts in it have gone through `label` or `said`. Attributes are figures and words of
    ours, never texts from a database.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = value if isinstance(value, str) else number(value)
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{shown}"')
    opened = " ".join(parts)
    return f"<{opened}>{content}</{name}>" if content else f"<{opened}/>"


def label(x: float, y: float, text: str, *, class_: str = "", anchor: str = "start", most: int = 80) -> str:
    """Returns a line of text whose baseline starts, has its middle or ends at a point."""
    classes = " ".join(filter(None, (class_, {"middle": "m", "end": "e"}.get(anchor, "")))) or None
    return tag("text", escape(clean(text, most)), class_=classes, x=x, y=y)


def said(text: str) -> str:
    """Returns what is said of an element that is pointed at."""
    return f"<title>{escape(clean(text, 600))}</title>"


def line(points: list[tuple[float, float]]) -> str:
    """Returns path data through points."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def document(drawing: Drawing, *, key: str = "picture", standalone: bool = False) -> str:
    """Returns an SVG element for a page, or a whole file.

    Args:
        drawing: the picture.
        key: begins the ids in it; two pictures of one page need different ones.
        standalone: whether it is a file of its own, with its style in it.
    """
    named = f'role="{"group" if drawing.live else "img"}" aria-labelledby="{key}-title {key}-desc"'
    edge = EDGE if standalone else 0
    box = [number(part) for part in (-edge, -edge, drawing.width + 2 * edge, drawing.height + 2 * edge)]
    size = f'viewBox="{" ".join(box)}" width="{box[2]}" height="{box[3]}"'
    head = (
        f'<title id="{key}-title">{escape(clean(drawing.title))}</title>'
        f'<desc id="{key}-desc">{escape(clean(drawing.description, 2000))}</desc>'
    )
    if not standalone:
        breadth = " wide" if drawing.width > 700 else " middling" if drawing.width > 420 else ""
        return f'<svg class="picture{breadth}" {size} {named}>{head}{drawing.body}</svg>'
    paper = f'<rect class="paper" x="{box[0]}" y="{box[1]}" width="{box[2]}" height="{box[3]}"/>'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" {size} {named}>{head}'
        f"<style>{style()}</style>{paper}{drawing.body}</svg>\n"
    )


def beside(drawings: list[Drawing], *, gap: float = 32) -> Drawing:
    """Returns pictures next to each other as one."""
    x, parts = 0.0, []
    for drawing in drawings:
        parts.append(tag("g", drawing.body, transform=f"translate({number(x)} 0)"))
        x += drawing.width + gap
    return Drawing(
        width=x - gap,
        height=max(drawing.height for drawing in drawings),
        title=" beside ".join(drawing.title for drawing in drawings),
        description=" ".join(f"{drawing.title}: {drawing.description}" for drawing in drawings),
        body="".join(parts),
    )


@lru_cache(maxsize=1)
def style() -> str:
    """Returns the rules of ``static/pictures.css`` for a file of its own, first for light and then for dark paper."""
    sheet = re.sub(r"/\*.*?\*/", "", files("adapters.web").joinpath("static/pictures.css").read_text(), flags=re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+):\s*([^;]+);", block)) for block in _variables(sheet))
    rules = re.findall(
        r"^\.picture[^{,]*(?:,\s*\.picture[^{,]*)*\{(?![^}]*--[\w-]+:)[^}]*\}", sheet, flags=re.MULTILINE
    )
    in_light = "".join(_resolved(rule, light) for rule in rules)
    in_dark = "".join(_resolved(rule, light | dark) for rule in rules if "var(" in rule)
    return f"{in_light}@media (prefers-color-scheme:dark){{{in_dark}}}"


def _variables(sheet: str) -> tuple[str, str]:
    light, dark = [block for block in re.findall(r"\{([^{}]*)\}", sheet) if re.search(r"--[\w-]+:", block)][:2]
    return light, dark


def _resolved(rule: str, values: dict[str, str]) -> str:
    plain = re.sub(r"var\(--([\w-]+)\)", lambda found: values[found[1]], rule)
    return re.sub(r"\s+", " ", plain).replace("{ ", "{").replace(" }", "}").replace("; ", ";").replace(": ", ":")
