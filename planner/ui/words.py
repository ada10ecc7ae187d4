"""Figures and names as text: three significant figures, a unit always, names that can't be taken for markup.

Inside the planner everything is in SI units; this is where seconds become milliseconds and bytes become GiB.
"""

import datetime as dt
import math
import re

from planner.units import BILLION, GB, GIB, HOUR_S, KIB, MILLION, MINUTE_S, MS, TB, TFLOPS, with_cents
from planner.units import plural as plural  # noqa: PLC0414 - part of the words, defined where every layer reaches it

NBSP = "\N{NO-BREAK SPACE}"
DASH = "—"
_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+.!|~$:^=-])")
_AT_START = re.compile(r"^(>|[+-](?=\s))")
_SPACES = re.compile(r"[^\S\u00a0]+")  # a no-break space stays: it keeps a figure and its unit on one line
_EXACT_BELOW = 1e5


def literal(text: object) -> str:
    r"""Return text that Markdown shows as it is: no link, image, formula, icon or HTML can come out of a name.

    >>> literal("<b>GPU</b> $1 :material/home:")
    '\\<b\\>GPU\\</b\\> \\$1 \\:material/home\\:'
    """
    return _MARKUP.sub(r"\\\1", _on_one_line(str(text)))


def sentence(text: str) -> str:
    r"""Return the planner's own prose for Markdown: only what could start a formula, a link, an icon or HTML is escaped.

    >>> sentence("Costs $98 a day, <10\xa0ms"), sentence("> 6"), sentence("- 6")
    ('Costs \\$98 a day, \\<10\xa0ms', '\\> 6', '\\- 6')
    """
    return _AT_START.sub(r"\\\1", re.sub(r"([\\`*_\[\]<$:~|#])", r"\\\1", _on_one_line(text)))


def stop(text: str) -> str:
    """Return a sentence with a capital and a full stop; a name such as vLLM or max_num_seqs keeps its own spelling.

    >>> stop("saves $34/day"), stop("Done."), stop("vLLM computes again"), stop("max_num_seqs binds"), stop("h100/vllm is fitted")
    ('Saves $34/day.', 'Done.', 'vLLM computes again.', 'max_num_seqs binds.', 'h100/vllm is fitted.')
    """
    text = text.strip()
    if not text:
        return ""
    first = text.split()[0]
    named = "_" in first or "/" in first or first[1:] != first[1:].lower()
    return (text if named else f"{text[0].upper()}{text[1:]}") + ("" if text[-1] in ".:;" else ".")


def figure(value: float | None) -> str:
    r"""Return a number with three significant figures, whole and with commas from a thousand on.

    >>> [figure(x) for x in (0.0412, 98.0, 1155, 12345, 1.5e7, 1e10, None)]
    ['0.0412', '98', '1,155', '12,345', '15\xa0M', '10\xa0B', '—']
    """
    if value is None or not math.isfinite(value):
        return DASH
    size = abs(value)
    if size >= MILLION * MILLION:
        return f"{_significant(value / (MILLION * MILLION))}{NBSP}T"
    if size >= BILLION:
        return f"{_significant(value / BILLION)}{NBSP}B"
    if size >= MILLION:
        return f"{_significant(value / MILLION)}{NBSP}M"
    if size >= 1000:
        return f"{round(value):,}" if size < _EXACT_BELOW else f"{round(value, -3):,.0f}"
    return _significant(value)


def seconds(value_s: float | None) -> str:
    r"""Return a duration: ms below a second, minutes above two, hours above two.

    >>> [seconds(x) for x in (0.000345, 0.0241, 0.412, 1.0, 86.4, 600.0, 56_100.0)]
    ['0.345\xa0ms', '24.1\xa0ms', '412\xa0ms', '1\xa0s', '86.4\xa0s', '10\xa0min', '15.6\xa0h']
    """
    if value_s is None or not math.isfinite(value_s):
        return DASH
    if abs(value_s) < 1.0:
        return f"{figure(value_s / MS)}{NBSP}ms"
    if abs(value_s) <= 2 * MINUTE_S:
        return f"{figure(value_s)}{NBSP}s"
    if abs(value_s) <= 2 * HOUR_S:
        return f"{figure(value_s / MINUTE_S)}{NBSP}min"
    return f"{figure(value_s / HOUR_S)}{NBSP}h"


def usd(value_usd: float | None) -> str:
    r"""Return dollars with three significant figures and never a single decimal; add the period where it is shown.

    >>> [usd(x) for x in (0.31, 1.8, 98.0, 1234.5, 2.5e6, -34.0)]
    ['$0.31', '$1.80', '$98', '$1,234', '$2.5\xa0M', '−$34']
    """
    if value_usd is None or not math.isfinite(value_usd):
        return DASH
    sign = "−" if value_usd < 0 else ""
    return f"{sign}${with_cents(figure(abs(value_usd)))}"


def gib(value_bytes: float | None) -> str:
    r"""Return bytes as GiB, or KiB and MiB where GiB would read 0.0.

    >>> gib(54.88 * 2**30), gib(131072.0), gib(5 * 2**20)
    ('54.9\xa0GiB', '128\xa0KiB', '5\xa0MiB')
    """
    return _binary(value_bytes)


def gigabytes_per_second(value_bytes_per_s: float | None) -> str:
    r"""Return a bandwidth in decimal GB/s or TB/s, as datasheets print it.

    >>> gigabytes_per_second(3.35e12), gigabytes_per_second(64e9)
    ('3.35\xa0TB/s', '64\xa0GB/s')
    """
    if value_bytes_per_s is None:
        return DASH
    if value_bytes_per_s >= TB:
        return f"{figure(value_bytes_per_s / TB)}{NBSP}TB/s"
    return f"{figure(value_bytes_per_s / GB)}{NBSP}GB/s"


def teraflops(value_flops_per_s: float | None) -> str:
    r"""Return dense compute in TFLOP/s.

    >>> teraflops(989.4e12)
    '989\xa0TFLOP/s'
    """
    return DASH if value_flops_per_s is None else f"{figure(value_flops_per_s / TFLOPS)}{NBSP}TFLOP/s"


def percent(share: float | None) -> str:
    r"""Return a share as per cent.

    >>> percent(0.384), percent(None)
    ('38.4\xa0%', '—')
    """
    return DASH if share is None else f"{figure(share * 100)}{NBSP}%"


def rate(value_rps: float | None) -> str:
    r"""Return requests a second.

    >>> rate(10.0)
    '10\xa0req/s'
    """
    return DASH if value_rps is None else f"{figure(value_rps)}{NBSP}req/s"


def span(low: str, high: str) -> str:
    r"""Join two formatted figures into an interval; a shared unit is said once, equal ends give one figure.

    >>> span("381\xa0ms", "455\xa0ms"), span("7", "7"), span("910\xa0ms", "1.2\xa0s"), span("$90", "$98")
    ('381–455\xa0ms', '7', '910\xa0ms–1.2\xa0s', '$90–98')
    """
    if low == high:
        return low
    low_figure, _, low_unit = low.partition(NBSP)
    _, _, high_unit = high.partition(NBSP)
    if low_unit == high_unit:
        low = low_figure
    if low.startswith("$") and high.startswith("$"):
        high = high[1:]
    return f"{low}–{high}"


def day(date: dt.date | None) -> str:
    """Return a date as 1 Nov 2026, the same in every locale.

    >>> day(dt.date(2026, 11, 1)), day(None)
    ('1 Nov 2026', '—')
    """
    if date is None:
        return DASH
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{date.day} {months[date.month - 1]} {date.year}"


def _on_one_line(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


def _significant(value: float) -> str:
    if value == 0.0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _binary(value_bytes: float | None) -> str:
    if value_bytes is None:
        return DASH
    if abs(value_bytes) >= 0.01 * GIB:
        return f"{figure(value_bytes / GIB)}{NBSP}GiB"
    if abs(value_bytes) >= KIB * KIB:
        return f"{figure(value_bytes / (KIB * KIB))}{NBSP}MiB"
    return f"{figure(value_bytes / KIB)}{NBSP}KiB"
