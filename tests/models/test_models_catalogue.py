"""The shipped models against independent counts, their hub pages, and what their makers advertise."""

import csv
import json
from functools import cache
from pathlib import Path

import pytest

from planner.models import ModelSpec, kv_bytes, list_models, load_model, loading, model_from_config, weight_bytes
from planner.paths import MODELS_DIR
from planner.units import GIB, KB, MB, TB

HERE = Path(__file__).parent

# Counts worked out by other code from the checkpoints' own configs; kv and index are stored values for one token.
with (HERE / "counts.csv").open() as lines:
    COUNTS = {row["id"]: {key: int(value) for key, value in row.items() if key != "id"} for row in csv.DictReader(lines)}

# The other count leaves the router's bias (288 values in each of 42 layers) out of the active parameters and in the total.
ACTIVE_EXCEPTIONS = {"step-3.7-flash": 42 * 288}

# The other count took no notice of sliding_window in these configs; vLLM and transformers do, so their cache is windowed.
WINDOW_EXCEPTIONS = {"phi-3-mini-4k-instruct", "starcoder2-3b", "starcoder2-7b", "starcoder2-15b"}

# Advertised sizes off by more than 3 %: gemma-3-4b counts its vision tower; the others are rounded or count differently.
ADVERTISED_EXCEPTIONS = {
    "gemma-3-4b-it": -0.10,
    "qwen3.5-4b": 0.055,
    "falcon-40b": 0.05,
    "starcoder2-15b": 0.065,
    "llama-2-7b-hf": -0.04,
}


@cache
def configs() -> dict[str, dict[str, object]]:
    return json.loads((HERE / "configs.json").read_text())


def test_every_counted_model_is_shipped_and_no_other() -> None:
    assert {spec.id for spec in list_models()} == set(COUNTS)
    assert len(COUNTS) == 106
    assert {path.stem for path in MODELS_DIR.glob("*.json")} == set(COUNTS)


@pytest.mark.parametrize("model_id", COUNTS)
def test_parameters_equal_the_independent_count(model_id: str) -> None:
    spec, count = load_model(model_id), COUNTS[model_id]
    assert spec.total_params == count["total_params"]
    assert spec.active_params - ACTIVE_EXCEPTIONS.get(model_id, 0) == count["active_params"]


@pytest.mark.parametrize("model_id", COUNTS)
def test_cached_values_equal_the_independent_count(model_id: str) -> None:
    spec, count = load_model(model_id), COUNTS[model_id]
    windowed = sum(group.count * group.kv_values_per_token for group in spec.groups if group.window_tokens is not None)
    full = sum(group.count * group.kv_values_per_token for group in spec.groups if group.window_tokens is None)
    full += sum(group.count * group.compressed_values_per_token for group in spec.groups)
    if model_id in WINDOW_EXCEPTIONS:
        assert (windowed, full) == (count["kv_values_full"], 0)
    else:
        assert (full, windowed) == (count["kv_values_full"], count["kv_values_window"])
    assert sum(group.count * group.index_values_per_token for group in spec.groups) == count["index_values"]


@pytest.mark.parametrize("model_id", configs())
def test_reader_makes_the_shipped_groups_from_the_config(model_id: str) -> None:
    read, shipped = model_from_config(configs()[model_id], model_id), load_model(model_id)
    assert read.groups == shipped.groups
    assert read.total_params == COUNTS[model_id]["total_params"]
    assert (read.layers, read.hidden, read.vocab, read.max_positions, read.tied_embeddings, read.position_params) == (
        shipped.layers,
        shipped.hidden,
        shipped.vocab,
        shipped.max_positions,
        shipped.tied_embeddings,
        shipped.position_params,
    )


def test_every_family_of_the_catalogue_has_a_config_to_read() -> None:
    assert {spec.family for spec in list_models()} == {str(config["model_type"]) for config in configs().values()}


def _hub(note: str) -> list[ModelSpec]:
    return [spec for spec in list_models() if spec.published is not None and spec.published.hub_note == note]


def test_sixty_six_models_equal_their_hub_total() -> None:
    exact, with_mtp, rotary = _hub("exact"), _hub("exact with the MTP layer"), _hub("exact apart from stored rotary buffers")
    assert len(exact) + len(with_mtp) + len(rotary) == 66
    for spec in exact:
        assert spec.published is not None
        assert spec.total_params == spec.published.hub_params, spec.id
    for spec in with_mtp:
        assert spec.published is not None
        assert spec.total_params + spec.mtp_params == spec.published.hub_params, spec.id
    for spec in rotary:
        assert spec.published is not None
        assert spec.published.hub_params is not None
        assert abs(spec.total_params - spec.published.hub_params) <= 5_120, spec.id


def test_hubs_that_store_the_tied_head_twice_hold_exactly_one_head_more() -> None:
    twice = _hub("hub stores the tied head a second time")
    assert {spec.id for spec in twice} == {"falcon-180b", "falcon-7b", "qwen3-0.6b", "qwen3-1.7b"}
    for spec in twice:
        assert spec.published is not None
        assert spec.published.hub_params == spec.total_params + spec.head_params


def test_advertised_sizes_hold_within_three_percent_or_are_named() -> None:
    for spec in list_models():
        if spec.published is None or spec.published.total_billion is None:
            continue
        error = spec.total_params / (spec.published.total_billion * 1e9) - 1
        named = ADVERTISED_EXCEPTIONS.get(spec.id)
        assert abs(error) <= 0.03 if named is None else abs(error - named) < 0.006, (spec.id, error)


# Bytes for one token at bf16 in layers that keep every token, and in windowed ones, published to two figures or more.
KV_FIGURES = [
    ("opt-175b", 4.7 * MB, 0),
    ("c4ai-command-r-v01", 1.3 * MB, 0),
    ("llama-3.1-70b-instruct", 328 * KB, 0),
    ("llama-3.1-8b-instruct", 131_072, 0),
    ("qwen3-8b", 147 * KB, 0),
    ("deepseek-v3", 70 * KB, 0),
    ("gpt-oss-120b", 37 * KB, 37 * KB),
    ("gemma-3-27b-it", 82 * KB, 426 * KB),
    ("qwen3.5-397b-a17b", 31 * KB, 0),
    ("nvidia-nemotron-3-nano-30b-a3b-bf16", 6.1 * KB, 0),
]


@pytest.mark.parametrize(("model_id", "full_bytes", "window_bytes"), KV_FIGURES)
def test_cache_for_a_token_is_as_published(model_id: str, full_bytes: float, window_bytes: float) -> None:
    held = kv_bytes(load_model(model_id), "bf16")
    assert held.full_bytes_per_token == pytest.approx(full_bytes, rel=0.02)
    assert held.window_bytes_per_token == pytest.approx(window_bytes, rel=0.02)


def test_windows_are_those_of_the_checkpoints() -> None:
    windows = {"gpt-oss-120b": 128, "gemma-3-27b-it": 1024, "gemma-2-9b": 4096, "llama-4-scout-17b-16e-instruct": 8192}
    for model_id, tokens in windows.items():
        assert kv_bytes(load_model(model_id), "bf16").window_tokens == tokens
    assert kv_bytes(load_model("qwen3-8b"), "bf16").window_tokens is None
    assert kv_bytes(load_model("phi-4-mini-instruct"), "bf16").window_tokens is None, "a window beyond the longest context is none"


# Recurrent values of one sequence to two figures, convolution included; the catalogue's own counts hold one input more of it.
STATE_FIGURES = {
    "kimi-k3": 119e6,
    "minimax-m1-80k": 73e6,
    "qwen3.5-397b-a17b": 49e6,
    "qwen3.5-27b": 40e6,
    "nvidia-nemotron-3-nano-30b-a3b-bf16": 12.6e6,
}


@pytest.mark.parametrize(("model_id", "values"), STATE_FIGURES.items())
def test_recurrent_state_is_as_published(model_id: str, values: float) -> None:
    spec = load_model(model_id)
    held = sum(group.count * (group.state_values + group.conv_values) for group in spec.groups)
    assert held == pytest.approx(values, rel=0.025)


def test_active_counts_that_makers_publish_are_met() -> None:
    published = {"gpt-oss-120b": 5.1, "deepseek-v3": 37, "kimi-k2-instruct": 32, "kimi-k3": 104, "deepseek-v4-pro": 49}
    for model_id, billions in published.items():
        assert load_model(model_id).active_params == pytest.approx(billions * 1e9, rel=0.015)


# Sizes of whole checkpoints in their own quantisation, vision tower and prediction layers aside.
CHECKPOINTS = [
    ("gpt-oss-120b", 60.8 * GIB, "gpt-oss model card (arXiv 2508.10925), table 1"),
    ("gpt-oss-20b", 12.8 * GIB, "gpt-oss model card (arXiv 2508.10925), table 1"),
    ("kimi-k3", 1.56 * TB, "github.com/manjunathshiva/turboquant-mlx issue 70: a 1.56 TB mxfp4 checkpoint"),
]


@pytest.mark.parametrize(("model_id", "published_bytes", "source"), CHECKPOINTS)
def test_native_checkpoints_weigh_what_is_published(model_id: str, published_bytes: float, source: str) -> None:
    spec = load_model(model_id)
    assert spec.native_quantization is not None
    assert weight_bytes(spec, spec.default_quantization).total == pytest.approx(published_bytes, rel=0.003), source


def test_every_figure_has_a_source() -> None:
    for spec in list_models():
        assert spec.sources["*"].ref
        assert (spec.native_quantization is None) == ("native_quantization" not in spec.sources)
        assert (spec.vision_params > 0) == ("vision_params" in spec.sources)
        assert spec.licence
        assert spec.source_for("hidden") == spec.sources["*"]


def test_listing_the_catalogue_reads_each_file_once() -> None:
    loading._parsed.cache_clear()
    count = len(list_models())
    assert loading._parsed.cache_info().misses == count
    list_models()
    assert loading._parsed.cache_info().misses == count
