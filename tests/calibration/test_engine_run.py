"""Recordings of an engine: an invented one is recovered from its own steps, and bad ones are refused by field."""

import datetime as dt
import gzip
import json
from typing import Any

import numpy as np
import pytest

from planner.accuracy.engine_run import batches_of, predict_phases
from planner.calibration.collected import read_collected
from planner.calibration.engine_run import engine_row, grid_as_collected, read_engine_run, ready_at_s, sent
from planner.calibration.fit import FitOptions, fit_record
from planner.calibration.fit.collected import deployment_of, rows_for_fit, steps_of_engine
from planner.calibration.fit.request_time import request_time_of
from planner.calibration.records import load_record
from planner.errors import InputError
from planner.hardware import load_gpu
from planner.simulator import EngineLimits, RequestTable, SimulationOptions, simulate
from planner.step_coefficients import coefficients_for

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1408,
    "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 4096,
    "max_position_embeddings": 4096, "tie_word_embeddings": False, "torch_dtype": "float32",
}  # fmt: skip
ENGINE = {
    "vllm": "0.32.0 (CPU)", "model": "invented", "max_num_seqs": 16, "max_num_batched_tokens": 256, "max_model_len": 4096,
    "enable_prefix_caching": False, "async_scheduling": False,
}  # fmt: skip
LIMITS = EngineLimits(
    max_num_seqs=16, max_num_batched_tokens=256, block_size=16, num_blocks=4096, max_model_len=4096, async_scheduling=False
)
BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
GRID = [(1, 30, 20), (4, 100, 20), (16, 50, 20), (16, 300, 10), (1, 1500, 10), (2, 900, 10), (8, 400, 10), (2, 60, 20)]
OUTSIDE_S = 0.004


def truth() -> Any:
    """The recorded CPU's record with other figures, which a fit doesn't know."""
    changes = {"compute_efficiency.fp32": 0.4, "attention_efficiency": 0.2, "kv_read_efficiency": 0.25, "host.host_s": 0.006}
    return load_record("cpu-recorded/vllm-0.32.0").with_values(changes | {"host.exposed_host_s_per_sequence": 0.0006})


def invented() -> dict[str, Any]:
    """A recording of the simulator itself, with steps of the record above."""
    row = engine_row(read_engine_run(json.dumps({"engine": ENGINE, "steps": [], "requests": {}}).encode(), "x"), CONFIG, "m", BEGAN)
    c = coefficients_for(deployment_of(row, load_gpu("cpu-recorded"), "0.32.0"), truth())
    rng = np.random.default_rng(5)
    phases = {f"grid-{n}x{prompt}": (np.zeros(n), np.full(n, prompt), np.full(n, output)) for n, prompt, output in GRID}
    arrivals = np.cumsum(rng.exponential(0.25, 80))
    phases["poisson"] = (arrivals, rng.integers(10, 400, 80), rng.integers(2, 40, 80))
    start_s, steps, requests = 10.0, [], {}
    for name, (arrival_s, prompt, output) in phases.items():
        result = simulate(RequestTable(arrival_s, prompt, output), LIMITS, c, SimulationOptions(log_steps=True))
        for step in result.steps or []:
            processed_s = start_s + step.start_s + step.duration_s
            # as vLLM's scheduler does, the chunk that fills the batch comes last
            rows = sorted(step.rows, key=lambda row: row.context + row.tokens < prompt[row.request])
            steps.append({
                "phase": name, "scheduled_at_s": start_s + step.scheduled_at_s, "processed_at_s": processed_s - 1e-5,
                "tokens": [row.tokens for row in rows], "context": [row.context for row in rows],
            })  # fmt: skip
        requests[name] = [
            {
                "id": f"{name}-{i}", "arrival_s": float(arrival_s[i]), "prompt": int(prompt[i]), "output": int(output[i]),
                "ttft_s": float(result.first_token_s[i] - arrival_s[i]) + OUTSIDE_S - 1e-5,
                "e2e_s": float(result.finish_s[i] - arrival_s[i]) + OUTSIDE_S,
            }
            for i in range(len(prompt))
        ]  # fmt: skip
        start_s += result.totals.makespan_s + 1.0
    return {"engine": ENGINE, "steps": steps, "requests": requests}


def written(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def test_an_invented_engine_is_recovered_from_its_grid_and_its_other_phase_predicted() -> None:
    run = read_engine_run(gzip.compress(written(invented())), "run")
    collected = read_collected(grid_as_collected(run, CONFIG, "m", BEGAN), "grid")
    assert collected.dropped == ()
    gpu, prior = load_gpu("cpu-recorded"), load_record("cpu-recorded/vllm-0.32.0")
    rows = rows_for_fit(collected, gpu, "0.32.0")
    assert rows.request_time is not None
    assert rows.request_time.median_s == pytest.approx(OUTSIDE_S, abs=1e-5)
    wide = {
        path: parameter.model_copy(update={"low": parameter.value / 20, "high": min(parameter.value * 20, 1.0)})
        for path, parameter in prior.parameters()
        if path.partition(".")[0] in {"compute_efficiency", "attention_efficiency", "kv_read_efficiency", "host"}
    }
    options = FitOptions(hold_out=False, row_error=0.001, day=BEGAN.date())
    record = fit_record(prior.with_parameters(wide), rows.groups, (), options).record.with_values({"host.request_s": OUTSIDE_S})
    (result,) = predict_phases(run, rows.groups[0].deployment, record)
    assert result.step_ratio == pytest.approx(1.0, abs=0.01)
    assert result.predicted == pytest.approx(result.measured, rel=0.02)
    assert dict(record.parameters())["compute_efficiency.fp32"].value == pytest.approx(0.4, rel=0.03)


def test_batches_are_those_that_ran() -> None:
    run = read_engine_run(written(invented()), "run")
    shape, seconds = batches_of(run, "poisson", 0.0)
    steps = [step for step in run.steps if step.phase == "poisson"]
    assert np.array_equal(shape.scheduled_tokens, [sum(step.tokens) for step in steps])
    # a prompt that ends just where the budget does looks cut
    assert float(np.sum(shape.sampled_tokens)) == pytest.approx(int(sent(run, "poisson").output_tokens.sum()), abs=2)
    assert (seconds >= [step.processed_at_s - step.scheduled_at_s for step in steps]).all()


def small() -> dict[str, Any]:
    step = {"phase": "grid-1x8", "scheduled_at_s": 1.0, "processed_at_s": 1.1, "tokens": [8], "context": [0]}
    after = step | {"scheduled_at_s": 1.101, "processed_at_s": 1.15, "tokens": [1], "context": [8]}
    last = after | {"scheduled_at_s": 9.0, "processed_at_s": 9.05, "context": [9]}
    request = {"id": "a", "arrival_s": 0.0, "planned_s": 0, "prompt": 8, "output": 3, "ttft_s": 0.103, "e2e_s": 0.2}
    return {"engine": dict(ENGINE), "steps": [step, after, last], "requests": {"grid-1x8": [request]}}


def test_a_step_lasts_until_the_next_decision_unless_the_engine_rested() -> None:
    run = read_engine_run(written(small()), "run")
    assert ready_at_s(run.steps) == [1.101, 1.15, 9.05]
    (group,) = steps_of_engine(read_collected(grid_as_collected(run, CONFIG, "m", BEGAN), "g"), load_gpu("cpu-recorded")).groups
    assert group.seconds == pytest.approx([0.101, 0.049, 0.05])
    assert list(group.phase) == ["prefill", "decode", "decode"]
    outside = request_time_of(read_collected(grid_as_collected(run, CONFIG, "m", BEGAN), "g"))
    assert outside is not None
    assert outside.median_s == pytest.approx(0.003)


def test_a_field_that_is_stated_twice_is_refused_by_name() -> None:
    twice = json.dumps(small()).replace('"prompt": 8', '"prompt": 9, "prompt": 8', 1).encode()
    with pytest.raises(InputError, match="run: prompt is 8: is stated twice"):
        read_engine_run(twice, "run")


def changed(path: str, value: Any) -> bytes:
    document = small()
    *parents, last = path.split(".")
    place: Any = document
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[int(last) if isinstance(place, list) else last] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("steps.0.scheduled_at_s", float("nan"), "JSON"),
        ("steps.0.scheduled_at_s", -1.0, "scheduled_at_s"),
        ("steps.0.scheduled_at_s", "1", "scheduled_at_s"),
        ("steps.0.processed_at_s", 1.0, "after scheduled_at_s"),
        ("steps.0.tokens", [], "tokens"),
        ("steps.0.tokens", [8, 1], "entry for each"),
        ("steps.0.tokens", [10**9], "tokens"),
        ("steps.0.tokens", [1.5], "tokens"),
        ("steps.0.colour", "red", "colour"),
        ("requests.grid-1x8.0.ttft_s", 0.3, "ttft_s"),
        ("requests.grid-1x8.0.ttft_s", 0.0, "ttft_s"),
        ("requests.grid-1x8.0.prompt", 0, "prompt"),
        ("requests.grid-1x8.0.id", "", "id"),
        ("engine.max_num_seqs", 0, "max_num_seqs"),
        ("engine.max_num_seqs", None, "max_num_seqs"),
    ],
)
def test_bad_recordings_are_refused_naming_the_field(path: str, value: Any, words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_engine_run(changed(path, value), "run.json")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"\x1f\x8bnot gzip", gzip.compress(written(small()))[:-20], b"\xff\xfe", b"null"]
)
def test_what_is_no_recording_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        read_engine_run(data, "run.json")


def test_a_file_that_unpacks_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.calibration.engine_run.MAX_BYTES", 1000)
    with pytest.raises(InputError, match="1,000 bytes"):
        read_engine_run(gzip.compress(b" " * 5000), "run.json.gz")


def test_a_grid_of_unequal_requests_is_refused_and_an_unknown_phase_named() -> None:
    document = small()
    document["requests"]["grid-1x8"].append(document["requests"]["grid-1x8"][0] | {"prompt": 9})
    run = read_engine_run(written(document), "run")
    with pytest.raises(InputError, match="equal requests"):
        grid_as_collected(run, CONFIG, "m", BEGAN)
    with pytest.raises(InputError, match="<b>"):
        sent(run, "<b>")
    with pytest.raises(InputError, match="torch_dtype"):
        grid_as_collected(run, CONFIG | {"torch_dtype": None}, "m", BEGAN)
