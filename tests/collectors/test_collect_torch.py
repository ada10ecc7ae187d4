"""The PyTorch collectors without PyTorch: shapes, sampling, limits, skipped points and the end of time."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from planner.models import load_model, model_from_config
from tests.collectors.fakes import collector

HEADER = {"collector": "torch", "machine": {"device_name": "A"}, "software": {}, "settings": {}}


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return collector("torch")


def bench(torch: ModuleType, limit_s: float = 5.0) -> Any:
    fake = SimpleNamespace(version=SimpleNamespace(hip=None))
    return torch.Bench(fake, "cpu", 32 * 2**20, 8 * 2**30, limit_s, 0.02)


def busy(seconds: float) -> Callable[[], object]:
    def call() -> None:
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            pass

    return call


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.1-70b"])
def test_built_in_shapes_are_those_of_the_catalogue(torch: ModuleType, name: str) -> None:
    """The four products and the head hold all matrices of the model that the planner's catalogue describes."""
    part = torch.model_part(torch.MODELS[name], 1)
    spec = load_model(f"{name}-instruct")
    values = {layer: k * n for layer, (k, n) in part["linear"].items()}
    head = values.pop("head")
    assert head == spec.head_params
    matrices = sum(values.values()) * torch.MODELS[name]["num_hidden_layers"]
    norms = spec.layers * 2 * spec.hidden
    assert matrices + norms == sum(group.count * group.params_per_layer for group in spec.groups)
    assert model_from_config(torch.MODELS[name], "built-in").total_params == spec.total_params


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_a_part_holds_its_share_and_replicates_scarce_heads(torch: ModuleType, tp: int) -> None:
    whole, part = (torch.model_part(torch.MODELS["llama-3.1-8b"], size) for size in (1, tp))
    for layer in ("output", "gate_up", "down", "head"):
        assert math.prod(part["linear"][layer]) * tp == math.prod(whole["linear"][layer])
    assert part["heads"] == 32 // tp
    assert part["kv_heads"] == max(8 // tp, 1)
    assert part["linear"]["qkv"][1] == (32 // tp + 2 * max(8 // tp, 1)) * 128


@pytest.mark.parametrize(
    "changes",
    [
        {"num_experts": 8},
        {"hidden_size": "4096"},
        {"hidden_size": -1},
        {"vocab_size": None, "num_attention_heads": None},
        {"num_attention_heads": 0, "num_key_value_heads": 0},
        {"hidden_size": 10**9},
    ],
)
def test_other_models_are_refused_with_the_way_out(
    torch: ModuleType, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        torch.model_part(torch.MODELS["llama-3.1-8b"] | changes, 1)
    assert stopped.value.code == 2
    assert "collect_vllm.py" in capsys.readouterr().err


@pytest.mark.parametrize("tp", [3, 7, 64])
def test_a_size_that_divides_nothing_is_refused(torch: ModuleType, capsys: pytest.CaptureFixture[str], tp: int) -> None:
    with pytest.raises(SystemExit):
        torch.model_part(torch.MODELS["llama-3.1-8b"], tp)
    assert "must divide" in capsys.readouterr().err


def test_a_call_of_known_length_is_measured(torch: ModuleType) -> None:
    timing = bench(torch).measure([busy(1e-3)], graphs=True)
    assert timing["median_s"] == pytest.approx(1e-3, rel=0.5)
    assert timing["median_s"] >= 1e-3
    assert timing["lower_quartile_s"] <= timing["median_s"] <= timing["upper_quartile_s"]
    assert (timing["samples"], timing["calls_per_sample"], timing["in_graph"]) == (30, 1, False)


def test_short_calls_are_measured_in_groups(torch: ModuleType) -> None:
    timing = bench(torch).measure([lambda: None], graphs=False)
    assert timing["calls_per_sample"] > 10
    assert 0 < timing["median_s"] < 2e-6


def test_buffers_take_turns(torch: ModuleType) -> None:
    used: list[int] = []
    calls = [lambda number=number: (used.append(number), busy(1e-4)()) for number in range(4)]
    bench(torch).measure(calls, graphs=False)
    assert max(used.count(number) for number in range(4)) - min(used.count(number) for number in range(4)) <= 1


def test_what_takes_too_long_is_not_measured(torch: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"exceed the 0\.1 s that a point may take"):
        bench(torch, limit_s=0.1).measure([busy(0.01)], graphs=False)


def test_enough_buffers_to_leave_the_cache_and_never_more_than_fit(torch: ModuleType) -> None:
    one = bench(torch)
    assert len(one.copies(16 * 2**20)) * 16 * 2**20 >= 4 * one.cache_bytes
    assert len(one.copies(2**30)) == 1
    assert len(one.copies(1)) == 64
    with pytest.raises(RuntimeError, match="may be used"):
        one.copies(5 * 2**30)


def points(torch: ModuleType, calls: dict[str, Callable[[], object]]) -> list[Any]:
    return [torch.Point("launch", {"name": name}, lambda call=call: [call]) for name, call in calls.items()]


def fails() -> None:
    raise RuntimeError("out of memory\nmore")


def test_a_point_that_fails_is_recorded_and_the_rest_goes_on(torch: ModuleType, tmp_path: Path) -> None:
    out = torch.RecordFile(tmp_path / "a.jsonl", HEADER)
    todo = points(torch, {"bad": fails, "good": busy(1e-4)})
    assert torch.collect(iter(todo), out, bench(torch), ("cpu", "0"), time.monotonic() + 20)
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()][1:]
    found = {row["key"]: row for row in rows}
    assert found["launch name=bad"]["reason"] == "out of memory"
    assert found["launch name=good"]["median_s"] >= 1e-4
    assert found["launch name=good"]["throttled"] is None


def test_a_second_run_takes_up_what_is_left(torch: ModuleType, tmp_path: Path) -> None:
    measured: list[str] = []

    def noted(name: str) -> Callable[[], object]:
        return lambda: (measured.append(name), busy(1e-4)())

    out = torch.RecordFile(tmp_path / "a.jsonl", HEADER)
    torch.collect(iter(points(torch, {"one": noted("one")})), out, bench(torch), ("cpu", "0"), time.monotonic() + 20)
    measured.clear()
    again = torch.RecordFile(tmp_path / "a.jsonl", HEADER)
    both = points(torch, {"one": noted("one"), "two": noted("two")})
    assert torch.collect(iter(both), again, bench(torch), ("cpu", "0"), time.monotonic() + 20)
    assert set(measured) == {"two"}


def test_the_run_ends_in_time_and_says_that_more_is_left(
    torch: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = torch.RecordFile(tmp_path / "a.jsonl", HEADER)
    assert not torch.collect(iter(points(torch, {"one": fails})), out, bench(torch), ("cpu", "0"), time.monotonic() - 1)
    assert "the same command measures the rest" in capsys.readouterr().err


def test_a_dead_gpu_ends_the_run_after_naming_the_point(
    torch: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def dead() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    out = torch.RecordFile(tmp_path / "a.jsonl", HEADER)
    with pytest.raises(SystemExit):
        torch.collect(iter(points(torch, {"one": dead})), out, bench(torch), ("cpu", "0"), time.monotonic() + 20)
    assert "launch name=one" in capsys.readouterr().err


def test_grids_let_whole_steps_be_put_together(torch: ModuleType) -> None:
    for grid in torch.GRIDS.values():
        assert set(grid["sequences"]) <= set(grid["tokens"])
        assert set(grid["chunks"]) <= set(grid["tokens"])
        assert 1 in grid["tokens"]


class FakeCuda:
    """Events on the host's clock and graphs that replay what was called while they were captured."""

    def __init__(self, *, capturable: bool) -> None:
        self.capturable, self.replays = capturable, 0

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at_s = time.perf_counter()

        def elapsed_time(self, end: Any) -> float:
            return float(end.at_s - self.at_s) * 1e3

    def synchronize(self) -> None:
        pass

    def CUDAGraph(self) -> Any:  # noqa: N802 - PyTorch's name
        def replay() -> None:
            self.replays += 1
            busy(1e-3)()

        return SimpleNamespace(replay=replay)

    @contextlib.contextmanager
    def graph(self, _: Any) -> Iterator[None]:
        if not self.capturable:
            raise RuntimeError("operation not permitted when stream is capturing")
        yield


@pytest.mark.parametrize("capturable", [True, False])
def test_a_gpu_is_timed_by_events_in_a_graph_where_it_can_be_captured(torch: ModuleType, capturable: bool) -> None:
    cuda = FakeCuda(capturable=capturable)
    fake = SimpleNamespace(version=SimpleNamespace(hip=None), cuda=cuda)
    one = torch.Bench(fake, "cuda", 2**20, 2**30, 5.0, 0.02)
    timing = one.measure([busy(1e-4)] * 5, graphs=True)
    assert timing["in_graph"] is capturable
    assert (cuda.replays >= 30) is capturable
    expected = 1e-3 / timing["calls_per_sample"] if capturable else 1e-4
    assert timing["median_s"] == pytest.approx(expected, rel=0.5)
    assert not one.measure([busy(1e-4)], graphs=False)["in_graph"]
