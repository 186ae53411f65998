"""Tables as CSV files, written while they are read."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from starlette.responses import StreamingResponse

from adapters.web.pages.site import plain

Cell = object

_STARTS_FORMULA: tuple[str, ...] = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    "\N{FULLWIDTH EQUALS SIGN}",
    "\N{FULLWIDTH PLUS SIGN}",
)
_STARTS_FORMULA += ("\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}")
_LINES_AT_ONCE = 200


def csv_answer(name: str, heading: Sequence[str], rows: Iterable[Sequence[Cell]]) -> StreamingResponse:
    """Returns a CSV file of rows, which are read as the file is sent.

    Texts that a spreadsheet would take for a formula begin with an apostrophe; numbers stay numbers.
    """
    return StreamingResponse(
        _chunks(heading, rows),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"', "Cache-Control": "private, no-store"},
    )


def _chunks(heading: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(heading)
    for count, row in enumerate(rows, start=1):
        writer.writerow([cell(value) for value in row])
        if count % _LINES_AT_ONCE == 0:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def cell(value: Cell) -> str:
    """Returns a value as a CSV cell."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return (
                ""
                if math.isnan(value)
                else "inf"
                if value == math.inf
                else "-inf"
                if value == -math.inf
                else repr(value)
            )
        case int():
            return str(value)
        case datetime():
            return str(plain(value))
    text = str(plain(value)).replace("\0", "")
    return f"'{text}" if text.lstrip(" ").startswith(_STARTS_FORMULA) or text.startswith(_STARTS_FORMULA) else text
