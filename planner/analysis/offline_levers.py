"""What a day of batch work costs, and what each lever saves alone and on top of the others, each recomputed as its own fleet."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scipy.stats import poisson

from planner.analysis.explanation import Explanation
from planner.analysis.offline import DailyWork, OfflineFleet, offline_fleet
from planner.errors import InputError
from planner.hardware.api_prices import BatchDiscount, TokenPrice, batch_discounts, token_prices
from planner.step_model import StepCoefficients
from planner.units import HOURS_PER_DAY, MILLION, MINUTE_S, dollars

Lever = Literal[
    "prefix caching", "FP8 weights", "FP8 KV cache", "larger batch", "spot", "another GPU", "idle GPUs off-peak", "length sorting"
]
LEVERS: tuple[Lever, ...] = (
    "prefix caching",
    "FP8 weights",
    "FP8 KV cache",
    "larger batch",
    "spot",
    "another GPU",
    "idle GPUs off-peak",
    "length sorting",
)
CERTAINTY = 0.99
INTERRUPTION_MINUTES = 10.0
_MOST_SEQUENCES = 65536.0
_ROUNDING, _STRIDE = 1e-9, 500
_WORTH = 1e-3
_FEWEST_GPUS, _CENT, _WHOLE_FROM = 0.001, 0.01, 100.0
_DAY_MINUTES = HOURS_PER_DAY * MINUTE_S


class Machine(NamedTuple):
    """A layout that can be rented.

    gpus : of one replica
    usd_per_gpu_hour, spot_usd_per_gpu_hour : on demand, and interruptible [USD/h]; None where nobody sells it so
    price_source, spot_source : where the prices come from
    """

    gpu_id: str
    gpu_name: str
    gpus: int
    usd_per_gpu_hour: float | None
    spot_usd_per_gpu_hour: float | None
    price_source: str
    spot_source: str


class Way(NamedTuple):
    """One way to do the work: a machine, how numbers are stored, the batch, and what it may use."""

    machine: Machine
    weights: str
    kv_dtype: str
    max_num_seqs: float
    cached: bool = False
    spot: bool = False
    idle: bool = False


class Engine(NamedTuple):
    """One replica; kv_tokens : that its KV cache holds [token]."""

    coefficients: StepCoefficients
    kv_tokens: float


Engines = Callable[[Machine, str, str], Engine | None]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the levers may use.

    engines : the replica of a machine, weights and KV dtype; None where it doesn't start
    machines : that the work may move to
    cached_share : of prompt tokens that repeat [1]
    spot_lost_minutes : that interruptions cost a spot machine a day, in lost work and restarts, about ten each [min/day]
    idle_gpu_hours : a day that are paid for already and free in the window [h]
    hours : in which the work may run [h/day]
    fp8_weights : the quantization to move to; None where the model is stored in fewer bits already
    """

    engines: Engines
    machines: tuple[Machine, ...]
    cached_share: float
    spot_lost_minutes: float
    idle_gpu_hours: float
    hours: float
    fp8_weights: str | None

    def __post_init__(self) -> None:
        if not 0.0 <= self.cached_share < 1.0:
            raise InputError("cached_share", self.cached_share, "must be at least 0 and below 1", "Give a share of prompt tokens")
        if not 0.0 < self.hours <= HOURS_PER_DAY:
            raise InputError("hours", self.hours, "must be above 0 and at most 24", "Give the hours a day that work may run")
        if not 0.0 <= self.spot_loss < 1.0:
            bound = "must be at least 0 and leave some of a day's 1,440 minutes to work"
            raise InputError("spot_lost_minutes", self.spot_lost_minutes, bound, "Give the minutes that interruptions cost")
        if not self.idle_gpu_hours >= 0.0:
            raise InputError("idle_gpu_hours", self.idle_gpu_hours, "must be at least 0", "Give GPU-hours a day, 0 for none")

    @property
    def spot_loss(self) -> float:
        """Share of a spot machine's time that interruptions cost [1]."""
        return self.spot_lost_minutes / _DAY_MINUTES

    @property
    def interruptions_per_day(self) -> float:
        """How often a spot machine is taken away [1/day]."""
        return self.spot_lost_minutes / INTERRUPTION_MINUTES


@dataclass(frozen=True, slots=True)
class Bill:
    """A day's work done one way.

    fleet : GPU-days of prompts and decode; gpu_hours : rented, with what interruptions cost [h/day]
    idle_hours : of GPUs that are paid for already [h/day]; usd_per_day : for the rented ones [USD/day]
    prefill_usd, decode_usd : the two shares of it [USD/day]; replicas : that finish within the window
    usd_per_million_tokens : of prompt and output [USD/Mtoken]
    """

    way: Way
    fleet: OfflineFleet
    gpu_hours: float
    idle_hours: float
    usd_per_day: float
    prefill_usd: float
    decode_usd: float
    replicas: int
    usd_per_million_tokens: float


class Saving(NamedTuple):
    """One lever.

    alone, alone_usd : the bill with it alone, and what that saves [USD/day]; None where it can't be pulled here
    bill, added_usd : the bill with it and all levers before it, and what it saves on top of them [USD/day]
    """

    lever: Lever
    alone: Bill | None
    alone_usd: float
    bill: Bill
    added_usd: float


def bill_of(way: Way, work: DailyWork, terms: Terms) -> Bill | None:
    """Return what the work costs one way; None when the engine doesn't start or nobody rents the machine so."""
    usd = way.machine.spot_usd_per_gpu_hour if way.spot else way.machine.usd_per_gpu_hour
    engine = terms.engines(way.machine, way.weights, way.kv_dtype)
    if usd is None or engine is None:
        return None
    batch = min(way.max_num_seqs, engine.kv_tokens / work.running_context_tokens)
    if batch < 1.0:
        return None
    cached = terms.cached_share * work.prompt_tokens if way.cached else 0.0
    fleet = offline_fleet(work._replace(cached_tokens=cached), batch, way.machine.gpus, engine.coefficients)
    needed = fleet.gpu_days * HOURS_PER_DAY
    idle = min(terms.idle_gpu_hours, needed) if way.idle else 0.0
    rented = (needed - idle) / (1.0 - terms.spot_loss if way.spot else 1.0)
    cost = rented * usd
    per_replica = terms.hours * way.machine.gpus
    return Bill(
        way=way,
        fleet=fleet,
        gpu_hours=rented,
        idle_hours=idle,
        usd_per_day=cost,
        prefill_usd=cost * fleet.prefill_share,
        decode_usd=cost * (1.0 - fleet.prefill_share),
        replicas=math.ceil((rented + idle) / per_replica),
        usd_per_million_tokens=cost / (work.prompts_total + work.outputs_total) * MILLION,
    )


def pulled(way: Way, lever: Lever, work: DailyWork, terms: Terms) -> Bill | None:
    """Return the bill with one more lever pulled; None where it changes nothing that could be priced.

    Another GPU is the cheapest machine of all with everything else as it is, on demand where its spot price isn't known. Length
    sorting changes no bill of an engine that refills its batch: it is what static batches lose.
    """
    if lever == "another GPU":
        return _cheapest(bill_of(_moved(way, machine), work, terms) for machine in terms.machines)
    if lever == "FP8 weights":
        return None if terms.fp8_weights is None else bill_of(way._replace(weights=terms.fp8_weights), work, terms)
    changes: dict[Lever, Way] = {
        "prefix caching": way._replace(cached=True),
        "FP8 KV cache": way._replace(kv_dtype="fp8"),
        "larger batch": way._replace(max_num_seqs=_MOST_SEQUENCES),
        "spot": way._replace(spot=True),
        "idle GPUs off-peak": way._replace(idle=True),
        "length sorting": way,
    }
    return bill_of(changes[lever], work, terms)


def _moved(way: Way, machine: Machine) -> Way:
    return way._replace(machine=machine, spot=way.spot and machine.spot_usd_per_gpu_hour is not None)


def _refused(way: Way, work: DailyWork, terms: Terms) -> InputError:
    """Return why no replica can do the work in a way that has a price."""
    machine = f"{way.machine.gpu_name} × {way.machine.gpus}"
    engine = terms.engines(way.machine, way.weights, way.kv_dtype)
    if engine is None:
        return InputError("weights", way.weights, f"don't start on {machine}", "Use more GPUs a replica or fewer weight bits")
    request = f"{work.prompt_tokens:,.0f} prompt + {work.output_tokens:,.0f} output tokens"
    bound = f"must fit the KV cache, which holds {engine.kv_tokens:,.0f} tokens beside the weights on {machine}"
    remedy = "Shorten the prompt or lower the output tokens a day, or use more GPUs a replica or fewer weight bits"
    return InputError("request", request, bound, remedy)


def stacked(way: Way, work: DailyWork, terms: Terms) -> tuple[Bill, tuple[Saving, ...]]:
    """Return the present bill, and the levers in the order of the dollars that each saves on top of those before it.

    Each step tries every lever that is left and takes the one that saves most; those that save less than a thousandth of the
    present bill, or cost more, come last and are not pulled.
    """
    if way.machine.usd_per_gpu_hour is None:
        raise InputError("price", way.machine.gpu_name, "has no price on demand", "Give hardware.usd_per_gpu_hour, or another GPU")
    base = bill_of(way, work, terms)
    if base is None:
        raise _refused(way, work, terms)
    left, bill, found = list(LEVERS), base, list[Saving]()
    while left:
        tried = [(lever, pulled(bill.way, lever, work, terms) or bill) for lever in left]
        lever, best = min(tried, key=lambda pair: pair[1].usd_per_day)
        saved = bill.usd_per_day - best.usd_per_day
        if saved <= _WORTH * base.usd_per_day:
            break
        found.append(_saving(lever, base, best, saved, (work, terms)))
        left.remove(lever)
        bill = best
    rest = [_saving(lever, base, bill, 0.0, (work, terms)) for lever in left]
    return base, (*found, *sorted(rest, key=lambda each: -each.alone_usd))


def _saving(lever: Lever, base: Bill, bill: Bill, added_usd: float, asked: tuple[DailyWork, Terms]) -> Saving:
    alone = pulled(base.way, lever, *asked)
    return Saving(lever, alone, 0.0 if alone is None else base.usd_per_day - alone.usd_per_day, bill, added_usd)


class Window(NamedTuple):
    """A window or deadline.

    hours : in which a day's work must be done [h]; replicas : that finish it on machines that stay
    on_spot : replicas that finish it with the certainty asked on machines that may be taken away
    """

    hours: float
    replicas: int
    on_spot: int


def over_windows(bill: Bill, hours: Iterable[float], terms: Terms, certainty: float = CERTAINTY) -> tuple[Window, ...]:
    """Return the replicas that finish a day's work within windows [h]; certainty : that it is done on spot machines [1]."""
    replica_hours = bill.fleet.gpu_days * HOURS_PER_DAY / bill.way.machine.gpus
    found = []
    for each in hours:
        least = math.ceil(replica_hours / each)
        found.append(Window(each, least, _on_spot(replica_hours, each, terms, (least, certainty))))
    return tuple(found)


def _on_spot(replica_hours: float, hours: float, terms: Terms, wanted: tuple[int, float]) -> int:
    """Return the replicas that finish in time although interruptions, Poisson in number, cost some minutes each."""
    least, certainty = wanted
    replicas = math.ceil(least * (1.0 - _ROUNDING) / (1.0 - terms.spot_loss)) if terms.spot_loss else least
    while True:
        interruptions = replicas * hours / HOURS_PER_DAY * terms.interruptions_per_day
        borne = math.floor((replicas * hours - replica_hours) * MINUTE_S / INTERRUPTION_MINUTES)
        if borne >= 0 and poisson.cdf(borne, interruptions) >= certainty:
            return replicas
        replicas += max(replicas // _STRIDE, 1)


def _cheapest(bills: Iterable[Bill | None]) -> Bill | None:
    return min((bill for bill in bills if bill is not None), key=lambda bill: bill.usd_per_day, default=None)


class ApiBill(NamedTuple):
    """The same tokens behind a provider's API [USD/day]; batch_usd : by its batch API, None where no discount is known."""

    price: TokenPrice
    usd_per_day: float
    batch_usd_per_day: float | None
    discount: BatchDiscount | None


def api_bills(model_id: str, work: DailyWork) -> tuple[ApiBill, ...]:
    """Return what others ask for the day's tokens, by price, batch prices counted where they are known; empty when none is."""
    discounts = batch_discounts()
    found = []
    for price in token_prices(model_id):
        usd, discount = price.usd(work.prompts_total, work.outputs_total), discounts.get(price.provider)
        found.append(ApiBill(price, usd, None if discount is None else usd * (1.0 - discount.share), discount))
    return tuple(sorted(found, key=lambda bill: bill.usd_per_day if bill.batch_usd_per_day is None else bill.batch_usd_per_day))


def _gpus(days: float) -> str:
    """Return GPU-days for a sentence.

    >>> _gpus(1.132), _gpus(36.72), _gpus(12_345.6), _gpus(2e-9)
    ('1.13', '36.7', '12,346', 'under 0.001')
    """
    if days < _FEWEST_GPUS:
        return f"under {_FEWEST_GPUS:g}"
    return f"{days:.3g}" if days < _WHOLE_FROM else f"{days:,.0f}"


def _usd(amount_usd: float) -> str:
    """Return dollars for a sentence; a day's bill below a cent is no figure.

    >>> _usd(91.37), _usd(6060.9), _usd(0.0), _usd(1.2e-5)
    ('$91.40', '$6,061', '$0', 'under $0.01')
    """
    if 0.0 < amount_usd < _CENT:
        return f"under ${_CENT:g}"
    return dollars(amount_usd)


def offline_explanation(base: Bill, savings: tuple[Saving, ...]) -> Explanation:
    """Return the answer: GPUs and dollars of a day, the share of prompts, and what the levers leave of it."""
    fleet, last = base.fleet, savings[-1].bill
    total = base.usd_per_day
    best = max(savings, key=lambda each: each.alone_usd)
    answer = (
        f"{_gpus(fleet.gpu_days)} × {base.way.machine.gpu_name} busy all day, {_usd(total)}/day: {_gpus(fleet.prefill_gpu_days)} "
        f"for prompts and {_gpus(fleet.decode_gpu_days)} for decode at a batch of {fleet.batch:,.0f}. "
    )
    pulled_levers = [each for each in savings if each.added_usd > 0.0]
    if pulled_levers:
        answer += (
            f"With every lever that saves it costs {_usd(last.usd_per_day)}/day, {_usd(total - last.usd_per_day)} less; pulled by "
            f"itself {best.lever} saves most, {_usd(best.alone_usd)}/day."
        )
    else:
        answer += "No lever saves anything here."
    names = ", then ".join(each.lever for each in pulled_levers)
    return Explanation(
        answer,
        f"GPU-days = prompts × prefill / day + outputs / batch × step / day = {fleet.prefill_gpu_days:.2f} + "
        f"{fleet.decode_gpu_days:.2f}; × 24 h × ${base.usd_per_day / base.gpu_hours if base.gpu_hours else 0.0:.2f}/h",
        f"Pull them in this order: {names}." if names else "Keep the fleet as it is.",
    )
