"""Tables as CSV and JSON, safe to open in a spreadsheet."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence

Cell = str | float | int | bool | None
Row = Mapping[str, Cell]

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def spreadsheet_safe(cell: Cell) -> Cell:
    r"""Return a cell that a spreadsheet shows as text instead of running it as a formula.

    Only text is changed: a name that starts with one of = + - @, a tab or a line break gets a leading apostrophe (OWASP, "CSV
    injection"). Numbers keep their sign.

    >>> spreadsheet_safe('=HYPERLINK("http://example.org")'), spreadsheet_safe(-1.5)
    ('\'=HYPERLINK("http://example.org")', -1.5)
    """
    if isinstance(cell, str) and cell.lstrip(" ").startswith(_FORMULA_STARTS):
        return "'" + cell
    return cell


def to_csv(rows: Sequence[Row]) -> str:
    r"""Return rows as CSV with the first row's columns; None and figures that are not finite become empty cells.

    >>> to_csv([{"gpu": "@sum", "usd_per_day": 98.0}, {"gpu": "L4", "usd_per_day": None}])
    "gpu,usd_per_day\r\n'@sum,98.0\r\nL4,\r\n"
    """
    if not rows:
        return ""
    columns = list(rows[0])
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([spreadsheet_safe(column) for column in columns])
    writer.writerows([[spreadsheet_safe(_finite(row[column])) for column in columns] for row in rows])
    return text.getvalue()


def to_json(rows: Sequence[Row]) -> str:
    """Return rows as a JSON array of objects; None and figures that are not finite become null."""
    return json.dumps([{column: _finite(cell) for column, cell in row.items()} for row in rows], indent=1, ensure_ascii=False)


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
