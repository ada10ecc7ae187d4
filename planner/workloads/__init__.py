"""Workloads: who asks for what, when, and how much of it.

A Workload is lengths (a joint law of prompt and output tokens) × arrivals × classes. Load statements turn people, requests or
tokens a day into requests a second; importers turn a user's rows into a Workload.
"""

from planner.workloads.arrivals import (
    CLIENT_CVS,
    CLIENT_CVS_SOURCE,
    Arrivals,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    ProfileArrivals,
    TraceArrivals,
    WeibullArrivals,
)
from planner.workloads.catalogue import list_workloads, load_workload, register_workload, save_workload
from planner.workloads.classes import RequestClass, Streams, streams
from planner.workloads.importers import ColumnMap, ImportedRows, ImportReport, import_rows, workload_from_rows
from planner.workloads.laws import LengthStats, PairLaw, TokenLaw, expected_max_ratio, running_context_mean
from planner.workloads.lengths import (
    ConstantLengths,
    GammaLengths,
    HistogramLengths,
    Lengths,
    LognormalLengths,
    MixedLengths,
    MixtureLengths,
    RowFilter,
    RowsLengths,
    WeibullLengths,
    constant_lengths,
    with_means,
)
from planner.workloads.load import (
    LoadRate,
    TokensPerDay,
    rate_from_requests_per_day,
    rate_from_split_tokens_per_day,
    rate_from_tokens_per_day,
    rate_from_users,
)
from planner.workloads.marginals import Constant, Gamma, HistogramSide, Lognormal, Mixture, Weibull
from planner.workloads.prefix import PrefixHitCurve, prefix_hit_curve, prefix_hit_rate, prefix_hits
from planner.workloads.profiles import RateProfile, list_profiles, load_profile
from planner.workloads.requests import BlockHashes, Requests
from planner.workloads.trace import Trace, TraceMeta, list_traces, load_trace
from planner.workloads.workload import Workload

__all__ = [
    "CLIENT_CVS",
    "CLIENT_CVS_SOURCE",
    "Arrivals",
    "BlockHashes",
    "ColumnMap",
    "Constant",
    "ConstantArrivals",
    "ConstantLengths",
    "Gamma",
    "GammaArrivals",
    "GammaLengths",
    "HistogramLengths",
    "HistogramSide",
    "ImportReport",
    "ImportedRows",
    "LengthStats",
    "Lengths",
    "LoadRate",
    "Lognormal",
    "LognormalLengths",
    "MixedLengths",
    "Mixture",
    "MixtureLengths",
    "PairLaw",
    "PoissonArrivals",
    "PrefixHitCurve",
    "ProfileArrivals",
    "RateProfile",
    "RequestClass",
    "Requests",
    "RowFilter",
    "RowsLengths",
    "Streams",
    "TokenLaw",
    "TokensPerDay",
    "Trace",
    "TraceArrivals",
    "TraceMeta",
    "Weibull",
    "WeibullArrivals",
    "WeibullLengths",
    "Workload",
    "constant_lengths",
    "expected_max_ratio",
    "import_rows",
    "list_profiles",
    "list_traces",
    "list_workloads",
    "load_profile",
    "load_trace",
    "load_workload",
    "prefix_hit_curve",
    "prefix_hit_rate",
    "prefix_hits",
    "rate_from_requests_per_day",
    "rate_from_split_tokens_per_day",
    "rate_from_tokens_per_day",
    "rate_from_users",
    "register_workload",
    "running_context_mean",
    "save_workload",
    "streams",
    "with_means",
    "workload_from_rows",
]
