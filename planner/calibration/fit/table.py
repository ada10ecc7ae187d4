"""Read measured steps and all-reduces from CSV tables."""

import io

import numpy as np
import pandas as pd

from planner.attention_pairs import causal_pairs, window_pairs
from planner.calibration.fit.groups import AllReduceRows, StepGroup
from planner.calibration.records import CalibrationRecord
from planner.deployment import Deployment, Parallelism
from planner.engines import ENGINE_VERSIONS, EngineConfig, EngineName, engine_defaults
from planner.errors import InputError
from planner.hardware import GpuProfile
from planner.models import QUANTIZATIONS, load_model
from planner.step_coefficients import work_of
from planner.step_model import StepShape

MAX_BYTES = 64_000_000
MAX_ROWS = 1_000_000
COUNTS = ("decode_sequences", "decode_context_tokens", "prefill_tokens", "prefill_length")
COLUMNS = ("model", "quantization", "tp", *COUNTS, "step_s")
ALL_REDUCE_COLUMNS = ("tp", "message_bytes", "seconds")
_LARGEST = 1e9


def groups_from_csv(data: bytes, gpu: GpuProfile, record: CalibrationRecord) -> tuple[StepGroup, ...]:
    """Return the measured steps of one GPU in a table, grouped by model, quantization and tensor-parallel size.

    data : CSV with the columns model, quantization, tp, decode_sequences, decode_context_tokens (cached by each sequence),
        prefill_tokens (all new tokens), prefill_length (new tokens of each chunk), step_s; and, where it has them,
        prefill_context_tokens (cached by each chunk), kv_dtype, and gpu, engine and version, which then choose the rows
    gpu : whose rows are wanted
    record : names engine and version

    Raises InputError naming the column or row that is wrong.
    """
    table = _read(data, COLUMNS, "step table")
    for column, wanted in (("gpu", gpu.id), ("engine", record.engine), ("version", record.engine_version)):
        if column in table.columns:
            table = table[table[column].astype(str) == wanted]
    if table.empty:
        wanted = f"{gpu.id}, {record.engine} {record.engine_version}"
        raise InputError("step table", wanted, "has no rows for it", "Name the GPU, engine and version of the table")
    _numeric(table, ("tp", *COUNTS, "step_s"), "step table")
    for column in ("model", "quantization"):
        if table[column].isna().any():
            row = table.index[table[column].isna()][0]
            raise InputError(f"step table: {column}, row {row}", None, "is missing", "Name it in every row")
    keys = ["model", "quantization", "tp"]
    return tuple(_group(rows, gpu, record) for _, rows in table.groupby(keys, sort=True))


def all_reduce_rows_from_csv(data: bytes, gpu_id: str) -> tuple[AllReduceRows, ...]:
    """Return measured all-reduces by tensor-parallel size.

    data : CSV with the columns tp, message_bytes, seconds; and gpu, if it has it, which then chooses the rows
    """
    table = _read(data, ALL_REDUCE_COLUMNS, "all-reduce table")
    if "gpu" in table.columns:
        table = table[table["gpu"].astype(str) == gpu_id]
    _numeric(table, ALL_REDUCE_COLUMNS, "all-reduce table")
    return tuple(
        AllReduceRows(int(str(size)), rows["message_bytes"].to_numpy(np.float64), rows["seconds"].to_numpy(np.float64))
        for size, rows in table.groupby("tp", sort=True)
        if int(str(size)) > 1
    )


def _read(data: bytes, columns: tuple[str, ...], name: str) -> pd.DataFrame:
    if len(data) > MAX_BYTES:
        raise InputError(name, f"{len(data):,} bytes", f"must be at most {MAX_BYTES:,} bytes", "Keep the rows that matter")
    try:
        table = pd.read_csv(io.BytesIO(data), nrows=MAX_ROWS + 1, dtype={"version": str}, low_memory=False)
    except (ValueError, pd.errors.ParserError, UnicodeDecodeError) as error:
        raise InputError(name, data[:40], f"is not a CSV table ({error})", "Give comma-separated values with a header") from error
    if len(table) > MAX_ROWS:
        raise InputError(name, f"over {MAX_ROWS:,} rows", f"must have at most {MAX_ROWS:,} rows", "Sample the rows")
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise InputError(f"{name}: columns", list(table.columns)[:20], f"must hold {', '.join(missing)}", "Name the columns so")
    return table


def _numeric(table: pd.DataFrame, columns: tuple[str, ...], name: str) -> None:
    for column in columns:
        values = pd.to_numeric(table[column], errors="coerce")
        bad = ~np.isfinite(values.to_numpy(np.float64)) | (values < 0) | (values > _LARGEST * (1e3 if "bytes" in column else 1))
        if bad.any():
            place = int(np.argmax(bad))
            raise InputError(
                f"{name}: {column}, row {table.index[place]}",
                table[column].iloc[place],
                f"must be a number from 0 to {_LARGEST:g}",
                "Correct or remove the row",
            )


def _group(rows: pd.DataFrame, gpu: GpuProfile, record: CalibrationRecord) -> StepGroup:
    first = {str(column): value for column, value in rows.iloc[0].items()}
    quantization = QUANTIZATIONS.get(str(first["quantization"]))
    if quantization is None:
        known = ", ".join(QUANTIZATIONS)
        raise InputError("quantization", first["quantization"], f"must be one of {known}", "Name the weights' format so")
    size = _whole(float(first["tp"]))
    deployment = Deployment(
        gpu=gpu,
        model=load_model(str(first["model"])),
        quantization=quantization,
        kv_dtype=str(first.get("kv_dtype", "bf16")),
        parallelism=Parallelism(tp=size),
        engine=_engine(record, gpu, size),
    )
    shape = _shape(rows, work_of(deployment).window_tokens)
    decodes = np.asarray(shape.decode_sequences) > 0
    prefills = rows["prefill_tokens"].to_numpy(np.float64) > 0
    return StepGroup(
        label=f"{first['model']} {first['quantization']} tp{size}",
        deployment=deployment,
        shape=shape,
        seconds=rows["step_s"].to_numpy(np.float64),
        phase=np.where(decodes & prefills, "mixed", np.where(decodes, "decode", "prefill")),
        rows=rows.index.to_numpy(np.int64),
    )


def _whole(value: float) -> int:
    if not value.is_integer():
        raise InputError("step table: tp", value, "must be a whole number", "Give the GPUs that share a layer")
    return int(value)


def _shape(rows: pd.DataFrame, window: float) -> StepShape:
    decodes, context, tokens, length = (rows[column].to_numpy(np.float64) for column in COUNTS)
    cached = (
        rows["prefill_context_tokens"].to_numpy(np.float64) if "prefill_context_tokens" in rows.columns else np.zeros(len(rows))
    )
    chunks = np.where(length > 0, tokens / np.maximum(length, 1.0), 0.0)
    per_chunk = np.where(chunks > 0, tokens / np.maximum(chunks, 1e-9), 0.0)
    return StepShape(
        scheduled_tokens=decodes + tokens,
        sampled_tokens=decodes + chunks,
        sequences=decodes + chunks,
        decode_sequences=decodes,
        decode_context_tokens=decodes * context,
        decode_window_tokens=decodes * np.minimum(context, window),
        prefill_pairs=chunks * causal_pairs(cached, per_chunk),
        prefill_window_pairs=chunks * window_pairs(cached, per_chunk, window),
        prefill_context_tokens=chunks * cached,
    )


def _engine(record: CalibrationRecord, gpu: GpuProfile, size: int) -> EngineConfig:
    """Settings don't enter GPU times; a release that the engine tables don't list stands in by their newest."""
    engine: EngineName = next((name for name in ENGINE_VERSIONS if name == record.engine), "vllm")
    versions = ENGINE_VERSIONS[engine]
    version = record.engine_version if record.engine_version in versions else versions[-1]
    return engine_defaults(engine, version, gpu, size)
