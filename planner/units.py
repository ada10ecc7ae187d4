"""Units as factors to SI: multiply to come in, divide to go out.

Decimal bytes (GB) and binary bytes (GiB) are different names on purpose. Inside the planner every quantity is in bytes,
seconds, FLOP/s and dollars; only the user interface divides.
"""

from decimal import Decimal

KB = 1e3
MB = 1e6
GB = 1e9
TB = 1e12
KIB = 2.0**10
MIB = 2.0**20
GIB = 2.0**30

US = 1e-6
MS = 1e-3
MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0
HOURS_PER_DAY = 24.0

TFLOPS = 1e12
MILLION = 1e6
BILLION = 1e9

_WHOLE_FROM = 1e3


def three_figures(value: float) -> str:
    """Return a number for a sentence: three figures and no exponent; whole, with separators, from a thousand on.

    >>> three_figures(41.04), three_figures(1e-6), three_figures(12345.6), three_figures(1e7)
    ('41', '0.000001', '12,346', '10,000,000')
    """
    return f"{value:,.0f}" if abs(value) >= _WHOLE_FROM else f"{Decimal(f'{value:.3g}'):,f}"


def with_cents(amount: str) -> str:
    """Return an amount of money, written as a number, with two decimals where it has one.

    >>> with_cents("1.8"), with_cents("98"), with_cents("0.041"), with_cents("1,234.5")
    ('1.80', '98', '0.041', '1,234.50')
    """
    return f"{amount}0" if len(amount.partition(".")[2]) == 1 else amount


def dollars(amount_usd: float) -> str:
    """Return dollars for a sentence: three figures, whole from a thousand on, never a single decimal.

    >>> dollars(1.8), dollars(0.0412), dollars(98.0), dollars(12345.6), dollars(-34.0)
    ('$1.80', '$0.0412', '$98', '$12,346', '−$34')
    """
    return f"{'−' if amount_usd < 0 else ''}${with_cents(three_figures(abs(amount_usd)))}"


def per_second(rate_rps: float) -> str:
    """Return a rate of requests for a sentence.

    >>> per_second(41.04), per_second(1e7)
    ('41 req/s', '10,000,000 req/s')
    """
    return f"{three_figures(rate_rps)} req/s"


def duration(time_s: float) -> str:
    """Return a time for a sentence: milliseconds below one second, three figures, whole seconds from a thousand on.

    >>> duration(0.0265), duration(1.137), duration(2904.3)
    ('26.5 ms', '1.14 s', '2,904 s')
    """
    value, unit = (time_s / MS, "ms") if time_s < 1.0 else (time_s, "s")
    return f"{value:,.0f} {unit}" if value >= 999.5 else f"{value:.3g} {unit}"


def percentage(share: float, decimals: int = 0, *, signed: bool = False) -> str:
    r"""Return a share as per cent for a sentence, on one line with its sign.

    >>> percentage(0.384), percentage(0.384, 1), percentage(-0.009, 1, signed=True), percentage(0.304, 1, signed=True)
    ('38\xa0%', '38.4\xa0%', '−0.9\xa0%', '+30.4\xa0%')
    """
    return f"{signed_figure(share * 100.0, decimals) if signed else f'{share * 100.0:,.{decimals}f}'}\N{NO-BREAK SPACE}%"


def signed_figure(value: float, decimals: int = 1) -> str:
    """Return a number with its sign, as a difference is written.

    >>> signed_figure(2.04), signed_figure(-4.9)
    ('+2.0', '−4.9')
    """
    return f"{value:+,.{decimals}f}".replace("-", "−")


def plural(count: float, noun: str, written: str | None = None) -> str:
    """Return a count with its noun; written : the count as text where it isn't a plain whole number.

    >>> plural(1, "replica"), plural(2, "replica"), plural(0, "spare"), plural(1e3, "token", "1 K")
    ('1 replica', '2 replicas', '0 spares', '1 K tokens')
    """
    return f"{f'{count:,.0f}' if written is None else written} {noun}{'' if count == 1 else 's'}"
