"""The row formats that users have: one reader function and one table entry each.

A format is recognised by its column names alone, so a renamed file is still read and text columns are never opened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

TimeUnit = Literal["s", "ms", "us", "ns", "clock", "guess"]


@dataclass(frozen=True, slots=True)
class RawRows:
    """Columns of one file in the planner's terms, values untouched.

    arrival_unit : unit of numeric times; "clock" is a date and time, "guess" decides by size
    drop : rows that carry no work for a GPU, by reason
    block_tokens : tokens behind a block hash when the format fixes it; None: infer it
    """

    prompt: pd.Series
    output: pd.Series
    arrival: pd.Series | None = None
    arrival_unit: TimeUnit = "guess"
    block_hashes: pd.Series | None = None
    drop: Mapping[str, pd.Series] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowFormat:
    """A recognisable set of columns.

    needs : columns that identify it; uses : further columns that are read when present (names in lower case, spaces as _)
    read : columns → RawRows
    """

    needs: tuple[str, ...]
    read: Callable[[pd.DataFrame], RawRows]
    uses: tuple[str, ...] = ()


def normalised(name: object) -> str:
    """Return a column name in lower case with underscores, without byte order mark and quotes.

    >>> normalised(" Request tokens")
    'request_tokens'
    """
    return str(name).strip("\ufeff \t\r\n\"'").lower().replace(" ", "_")


def _optional(frame: pd.DataFrame, *names: str) -> pd.Series | None:
    return next((frame[name] for name in names if name in frame.columns), None)


def read_headroom(frame: pd.DataFrame) -> RawRows:
    """The planner's own columns; arrival_s in seconds."""
    return RawRows(frame["prompt_tokens"], frame["output_tokens"], frame["arrival_s"], "s", _optional(frame, "block_hashes"))


def read_azure(frame: pd.DataFrame) -> RawRows:
    """Azure LLM inference traces: TIMESTAMP is a date and time, with or without zone and fraction."""
    return RawRows(frame["contexttokens"], frame["generatedtokens"], _optional(frame, "timestamp"), "clock")


def read_vidur(frame: pd.DataFrame) -> RawRows:
    """Vidur and Etalon: arrived_at in seconds, absent in length lists."""
    return RawRows(frame["num_prefill_tokens"], frame["num_decode_tokens"], _optional(frame, "arrived_at"), "s")


def read_splitwise(frame: pd.DataFrame) -> RawRows:
    """splitwise-sim: arrival_timestamp in seconds."""
    return RawRows(frame["prompt_size"], frame["token_size"], _optional(frame, "arrival_timestamp"), "s")


def read_burstgpt(frame: pd.DataFrame) -> RawRows:
    """BurstGPT: Timestamp in seconds; failures have 0 response tokens."""
    return RawRows(frame["request_tokens"], frame["response_tokens"], _optional(frame, "timestamp"), "s")


def read_bailian(frame: pd.DataFrame) -> RawRows:
    """Qwen-Bailian: timestamp in seconds, hash_ids of 16-token blocks."""
    return RawRows(frame["input_length"], frame["output_length"], _optional(frame, "timestamp"), "s", _optional(frame, "hash_ids"))


def read_mooncake(frame: pd.DataFrame) -> RawRows:
    """Mooncake: timestamp in milliseconds, hash_ids of 512-token blocks."""
    return RawRows(frame["input_length"], frame["output_length"], _optional(frame, "timestamp"), "ms", _optional(frame, "hash_ids"))


def read_llmservingsim(frame: pd.DataFrame) -> RawRows:
    """LLMServingSim: arrival_time_ns in nanoseconds."""
    return RawRows(frame["input_toks"], frame["output_toks"], _optional(frame, "arrival_time_ns"), "ns")


def read_baseten(frame: pd.DataFrame) -> RawRows:
    """Baseten exports: timestamp_start_unix_ms in milliseconds."""
    return RawRows(frame["input_tokens"], frame["output_tokens"], frame["timestamp_start_unix_ms"], "ms")


def read_litellm(frame: pd.DataFrame) -> RawRows:
    """LiteLLM spend logs: failures and answers from LiteLLM's own response cache never reach a GPU."""
    reasons = {"status": ("failure", "status is failure"), "cache_hit": ("true", "answered by the gateway's response cache")}
    drop: dict[str, pd.Series] = {}
    for column, (value, reason) in reasons.items():
        if column in frame.columns:
            drop[reason] = frame[column].astype("string").str.lower().eq(value).fillna(value=False)
    return RawRows(frame["prompt_tokens"], frame["completion_tokens"], frame["starttime"], "guess", None, drop)


PROMPT_NAMES = (
    "prompt_tokens",
    "input_tokens",
    "num_prompt_tokens",
    "context_tokens",
    "prompt_length",
    "prompt_len",
    "input_length",
    "input_len",
    "isl",
)
OUTPUT_NAMES = (
    "output_tokens",
    "completion_tokens",
    "generated_tokens",
    "num_output_tokens",
    "response_tokens",
    "output_length",
    "output_len",
    "osl",
)
ARRIVAL_NAMES = (
    "arrival_s",
    "arrival",
    "arrival_time",
    "timestamp",
    "time",
    "start_time",
    "started_at",
    "created_at",
    "request_time",
    "arrival_time_ms",
    "arrival_ms",
    "timestamp_ms",
)


def read_by_usual_names(frame: pd.DataFrame) -> RawRows:
    """Any table whose columns have usual names; times by their name's unit, else by their size."""
    arrival = next((name for name in ARRIVAL_NAMES if name in frame.columns), None)
    unit: TimeUnit = "guess"
    if arrival is not None and arrival.endswith("_ms"):
        unit = "ms"
    elif arrival == "arrival_s":
        unit = "s"
    prompt = next(frame[name] for name in PROMPT_NAMES if name in frame.columns)
    output = next(frame[name] for name in OUTPUT_NAMES if name in frame.columns)
    return RawRows(prompt, output, None if arrival is None else frame[arrival], unit)


ROW_FORMATS: dict[str, RowFormat] = {
    "headroom": RowFormat(("prompt_tokens", "output_tokens", "arrival_s"), read_headroom, ("block_hashes",)),
    "azure": RowFormat(("contexttokens", "generatedtokens"), read_azure, ("timestamp",)),
    "vidur": RowFormat(("num_prefill_tokens", "num_decode_tokens"), read_vidur, ("arrived_at",)),
    "splitwise-sim": RowFormat(("prompt_size", "token_size"), read_splitwise, ("arrival_timestamp",)),
    "burstgpt": RowFormat(("request_tokens", "response_tokens"), read_burstgpt, ("timestamp",)),
    "bailian": RowFormat(("chat_id", "input_length", "output_length"), read_bailian, ("timestamp", "hash_ids")),
    "mooncake": RowFormat(("input_length", "output_length"), read_mooncake, ("timestamp", "hash_ids")),
    "llmservingsim": RowFormat(("input_toks", "output_toks"), read_llmservingsim, ("arrival_time_ns",)),
    "baseten": RowFormat(("input_tokens", "output_tokens", "timestamp_start_unix_ms"), read_baseten),
    "litellm": RowFormat(("prompt_tokens", "completion_tokens", "starttime"), read_litellm, ("status", "cache_hit")),
}


def detect(columns: Sequence[str]) -> str | None:
    """Return the name of the first format whose columns are all there; "columns" for usual names; None when unknown."""
    present = set(columns)
    for name, row_format in ROW_FORMATS.items():
        if present.issuperset(row_format.needs):
            return name
    return "columns" if present.intersection(PROMPT_NAMES) and present.intersection(OUTPUT_NAMES) else None


def format_of(name: str) -> RowFormat:
    """Return the format of a name that `detect` gave."""
    if name == "columns":
        return RowFormat((), read_by_usual_names, (*PROMPT_NAMES, *OUTPUT_NAMES, *ARRIVAL_NAMES))
    return ROW_FORMATS[name]
