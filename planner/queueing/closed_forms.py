"""Queues that have formulas: what they say about waits, tails and the utilisation to plan for.

Here `rate` is arrivals a second, `service_s` the mean time that one request occupies a server, and a "squared CV" is variance over
squared mean: 0 for constant times, 1 for exponential ones. A queue whose servers can't keep up has no steady state; functions then
return None, because that is an answer and not a fault of the input. An engine departs from these queues in four ways (requests
are served in batches, decode interferes, the KV cache admits, arrivals cluster): planner.queueing.mean_field has them.
"""

import math

from planner.errors import InputError


def utilisation(rate: float, service_s: float, servers: int = 1) -> float:
    """Share of the servers' time that arrivals need [1]; at 1 and above no steady state exists.

    rate : arrivals [request/s]; service_s : mean service time [s]; servers : alike and fed by one queue [1]

    Raises InputError for negative or non-finite figures.

    >>> utilisation(8.0, 0.1)
    0.8
    """
    _require("rate", rate, above=0.0, inclusive=True)
    _require("service_s", service_s, above=0.0)
    if servers < 1:
        raise InputError("servers", servers, "must be at least 1", "Give the number of replicas")
    return rate * service_s / servers


def in_system(rate: float, time_s: float) -> float:
    """Mean number of requests in a system, by Little's law N = rate × time [request].

    rate : arrivals that get in [request/s]; time_s : mean time that one spends inside [s]

    Holds for any steady state whatever the order of service, Little (1961), doi:10.1287/opre.9.3.383.

    >>> in_system(10.0, 1.25)
    12.5
    """
    _require("rate", rate, above=0.0, inclusive=True)
    _require("time_s", time_s, above=0.0, inclusive=True)
    return rate * time_s


def mm1_wait_s(rate: float, service_s: float) -> float | None:
    """Mean wait before service in M/M/1 [s]: S·ρ/(1-ρ); None without a steady state.

    >>> round(mm1_wait_s(8.0, 0.1), 12)
    0.4
    """
    return mg1_wait_s(rate, service_s, 1.0)


def md1_wait_s(rate: float, service_s: float) -> float | None:
    """Mean wait before service in M/D/1 [s]: half of M/M/1's; None without a steady state."""
    return mg1_wait_s(rate, service_s, 0.0)


def mg1_wait_s(rate: float, service_s: float, service_cv2: float) -> float | None:
    """Mean wait before service in M/G/1 [s], by Pollaczek and Khinchine: S·ρ/(1-ρ)·(1+c²)/2; None without a steady state.

    service_cv2 : squared CV of service times [1]

    Exact for Poisson arrivals and any order of service that does not look at the service times.
    """
    return gg1_wait_s(rate, service_s, 1.0, service_cv2)


def gg1_wait_s(rate: float, service_s: float, arrival_cv2: float, service_cv2: float) -> float | None:
    """Mean wait before service in G/G/1 [s], by Kingman: S·ρ/(1-ρ)·(a²+c²)/2; None without a steady state.

    arrival_cv2, service_cv2 : squared CV of the gaps between arrivals and of service times [1]

    Exact for Poisson arrivals; else an approximation that becomes exact as utilisation nears 1 and is too large far below it.
    Kingman (1961), doi:10.1017/S0305004100036094.
    """
    rho = utilisation(rate, service_s)
    _require("arrival_cv2", arrival_cv2, above=0.0, inclusive=True)
    _require("service_cv2", service_cv2, above=0.0, inclusive=True)
    if rho >= 1.0:
        return None
    return service_s * rho / (1.0 - rho) * (arrival_cv2 + service_cv2) / 2.0


def mg1_wait_quantile_s(rate: float, service_s: float, service_cv2: float, probability: float) -> float | None:
    """Wait that `probability` of requests stay below in M/G/1 [s]; None without a steady state.

    P(wait > t) = ρ·exp(-t·(1-ρ) / (S·(1+c²)/2)): exact for M/M/1; else the tail of heavy traffic, with the right chance of
    waiting at all and the right mean wait.
    """
    mean_s = mg1_wait_s(rate, service_s, service_cv2)
    late = 1.0 - _probability(probability)
    rho = utilisation(rate, service_s)
    if mean_s is None:
        return None
    return math.log(rho / late) * mean_s / rho if rho > late else 0.0


def mg1_sojourn_quantile_s(rate: float, service_s: float, service_cv2: float, probability: float) -> float | None:
    """Time from arrival to end of service that `probability` of requests stay below in M/G/1 [s]; None without a steady state.

    -ln(1-p)·S·(1+c²) / (2·(1-ρ)): exact for M/M/1, whose sojourn is exponential with mean S/(1-ρ). For other service times it is
    that law with the mean that heavy traffic gives to the wait, S·(1+c²)/(2·(1-ρ)); it ignores a single long service, so that the
    tail is too short at low utilisation when service times have a heavy tail.
    """
    rho = utilisation(rate, service_s)
    _require("service_cv2", service_cv2, above=0.0, inclusive=True)
    late = 1.0 - _probability(probability)
    return None if rho >= 1.0 else -math.log(late) * service_s * (1.0 + service_cv2) / (2.0 * (1.0 - rho))


def utilisation_for_quantile(target_s: float, service_s: float, service_cv2: float, probability: float = 0.99) -> float | None:
    """Largest utilisation at which `probability` of requests finish within a target in M/G/1 [1]; None when no load meets it.

    target_s : time from arrival to end of service [s]

    Solves mg1_sojourn_quantile_s for ρ: 1 + ln(1-p)·S·(1+c²) / (2·target).

    >>> round(utilisation_for_quantile(1.0, 0.063520484, 1.0), 4), round(utilisation_for_quantile(1.0, 0.063520484, 2.2), 4)
    (0.7075, 0.532)
    """
    _require("target_s", target_s, above=0.0)
    _require("service_s", service_s, above=0.0)
    _require("service_cv2", service_cv2, above=0.0, inclusive=True)
    late = 1.0 - _probability(probability)
    rho = 1.0 + math.log(late) * service_s * (1.0 + service_cv2) / (2.0 * target_s)
    return rho if rho > 0.0 else None


def erlang_c(servers: int, offered_load: float) -> float:
    """Chance that an arrival must wait in M/M/c, by Erlang's C formula [1]; 1 when the load reaches the servers.

    servers : alike and fed by one queue [1]; offered_load : rate × service time [1]

    From Erlang's B formula by its recursion B(n) = a·B(n-1) / (n + a·B(n-1)), which neither overflows nor cancels.

    >>> round(erlang_c(1, 0.8), 12), round(erlang_c(2, 1.0), 6)
    (0.8, 0.333333)
    """
    _require("offered_load", offered_load, above=0.0, inclusive=True)
    if servers < 1:
        raise InputError("servers", servers, "must be at least 1", "Give the number of replicas")
    if offered_load >= servers:
        return 1.0
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered_load * blocked / (n + offered_load * blocked)
    rho = offered_load / servers
    return blocked / (1.0 - rho * (1.0 - blocked))


def mmc_wait_s(rate: float, service_s: float, servers: int) -> float | None:
    """Mean wait before service in M/M/c [s]: C·S / (c·(1-ρ)); None without a steady state."""
    return ggc_wait_s(rate, service_s, servers, 1.0, 1.0)


def ggc_wait_s(rate: float, service_s: float, servers: int, arrival_cv2: float, service_cv2: float) -> float | None:
    """Mean wait before service in G/G/c [s], by Allen and Cunneen: M/M/c's wait × (a²+c²)/2; None without a steady state.

    Exact for M/M/c and for M/G/1; elsewhere an approximation for busy servers. Whitt (1993), Approximations for the GI/G/m queue,
    doi:10.1111/j.1937-5956.1993.tb00094.x.
    """
    rho = utilisation(rate, service_s, servers)
    _require("arrival_cv2", arrival_cv2, above=0.0, inclusive=True)
    _require("service_cv2", service_cv2, above=0.0, inclusive=True)
    if rho >= 1.0:
        return None
    mmc_s = erlang_c(servers, rate * service_s) * service_s / (servers * (1.0 - rho))
    return mmc_s * (arrival_cv2 + service_cv2) / 2.0


def _require(field: str, value: float, above: float, *, inclusive: bool = False) -> None:
    if not math.isfinite(value) or value < above or (value == above and not inclusive):
        bound = f"must be finite and {'at least' if inclusive else 'above'} {above:g}"
        raise InputError(field, value, bound, "Give a number within this bound")


def _probability(probability: float) -> float:
    if not 0.0 < probability < 1.0:
        raise InputError("probability", probability, "must be between 0 and 1", "Give 0.99 for the 99th percentile")
    return probability
