"""Reading collectors' files: nothing in them is trusted, and nothing is lost without a word."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.collected import Collected, read_collected
from planner.calibration.collected_rows import AllReduce, Engine, Gemm, HostCopy, Injection, Plateau, Point, Step, Ttft
from planner.errors import InputError

RECORDED = Path(__file__).parent / "recorded"
Record = dict[str, Any]
MACHINE = {"device_kind": "cuda", "device_name": "NVIDIA H100 80GB HBM3", "device_memory_bytes": 85_000_000_000}
HEADER: Record = {
    "record": "header",
    "format": "headroom-collected",
    "format_version": 1,
    "collector": "torch",
    "machine": MACHINE,
    "software": {"torch": "2.13.0", "driver": "580.1"},
    "settings": {},
    "command": "collect_torch.py",
}
CONFIG = {"model_type": "llama", "hidden_size": 4096}


def at(second: float) -> str:
    return f"2026-11-30T12:{int(second // 60):02d}:{second % 60:06.3f}Z"


def gemm(second: float = 1.0, **changes: Any) -> Record:
    times = {"median_s": 1e-4, "lower_quartile_s": 0.9e-4, "upper_quartile_s": 1.1e-4, "samples": 30, "calls_per_sample": 8}
    tokens = changes.get("tokens", 128)
    row = {"record": "gemm", "key": f"gemm qkv {tokens}", "layer": "qkv", "dtype": "bf16", "tokens": tokens, "k": 4096, "n": 6144}
    return row | times | {"in_graph": True, "throttled": False, "clock_hz": 1.755e9, "at_utc": at(second)} | changes


def written(*records: Record | bytes, header: Record | None = None) -> bytes:
    first = (header or HEADER) | {"at_utc": at(0)}
    return b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in (first, *records))


def read(*records: Record | bytes, header: Record | None = None) -> Collected:
    return read_collected(written(*records, header=header), "torch.jsonl")


def recorded(name: str) -> Collected:
    return read_collected(gzip.decompress((RECORDED / f"{name}.jsonl.gz").read_bytes()), name)


def test_rows_keep_their_figures_and_lines() -> None:
    collected = read(gemm(), gemm(2, tokens=256))
    assert [line for line, _ in collected.rows] == [2, 3]
    first, second = collected.of(Gemm)
    assert (first.tokens, first.median_s, second.tokens) == (128, 1e-4, 256)
    assert collected.machine.device_name == "NVIDIA H100 80GB HBM3"
    assert collected.dropped == ()
    assert collected.of(Step) == ()


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("torch_cpu", {"gemm": 28, "decode_attention": 7}),
        ("vllm_cpu_collected", {"step": 232, "engine": 2}),
        ("vllm_cpu_grid", {"step": 461, "point": 12}),
    ],
)
def test_recorded_files_are_read_whole(name: str, counts: dict[str, int]) -> None:
    collected = recorded(name)
    assert collected.dropped == ()
    for kind, count in counts.items():
        assert sum(row.record == kind for _, row in collected.rows) == count
    assert collected.machine.device_kind == "cpu"


def test_a_file_cut_off_anywhere_loses_only_its_last_line() -> None:
    whole = written(gemm(), gemm(2, tokens=256), gemm(3, tokens=512))
    start = whole.rindex(b'{"record"')
    for end in (start + 1, start + 40, len(whole) - 2):
        collected = read_collected(whole[:end], "torch.jsonl")
        assert len(collected.rows) == 2
        (lost,) = collected.dropped
        assert lost.line == 4
        assert "cut off" in lost.reason
        assert lost.text.startswith('{"record"'[: end - start])
    assert len(read_collected(whole[:-1], "torch.jsonl").rows) == 3


def test_a_cut_line_that_a_later_run_left_behind_is_called_cut_off() -> None:
    whole = written(gemm(), gemm(2, tokens=256))
    end = whole.rindex(b'{"record"') + 28
    collected = read_collected(whole[:end] + b"\n" + written(gemm(3, tokens=512)), "torch.jsonl")
    assert (collected.runs, len(collected.rows)) == (2, 2)
    assert "cut off" in collected.dropped[0].reason


def test_a_line_broken_in_the_middle_is_kept_apart() -> None:
    collected = read(gemm(), b'{"record": "gemm", "tok\n', gemm(2, tokens=256))
    assert len(collected.rows) == 2
    assert (collected.dropped[0].line, "not JSON" in collected.dropped[0].reason) == (3, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"median_s": -1e-4, "lower_quartile_s": -1e-4}, "median_s"),
        ({"median_s": 0.0}, "median_s"),
        ({"median_s": True}, "median_s"),
        ({"median_s": "fast"}, "median_s"),
        ({"median_s": 2e-4}, "between the quartiles"),
        ({"tokens": 0}, "tokens"),
        ({"tokens": 1.5}, "tokens"),
        ({"tokens": 10**30}, "tokens"),
        ({"dtype": "<script>"}, "dtype"),
        ({"layer": "../../etc/passwd"}, "layer"),
        ({"surprise": 1}, "surprise"),
        ({"at_utc": "yesterday"}, "at_utc"),
        ({"key": None}, "no key"),
        ({"record": "gem"}, "no record that this release knows"),
        ({"median_s": 1e-9, "lower_quartile_s": 1e-9, "upper_quartile_s": 1e-9}, "no device exceeds"),
    ],
)
def test_wrong_rows_are_left_out_with_the_reason(changes: Record, words: str) -> None:
    collected = read(gemm(1, tokens=64), gemm(2, **changes))
    assert [row.key for row in collected.of(Gemm)] == ["gemm qkv 64"]
    (lost,) = collected.dropped
    assert lost.line == 3
    assert words in lost.reason
    assert len(lost.reason) < 400


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_nan_and_infinity_are_left_out(value: bytes) -> None:
    line = json.dumps(gemm(2)).encode().replace(b"0.0001,", value + b",", 1) + b"\n"
    assert value in line
    collected = read(gemm(1, tokens=64), line)
    assert len(collected.rows) == 1
    assert collected.dropped[0].line == 3


def test_a_field_that_is_stated_twice_is_left_out_with_its_name() -> None:
    line = json.dumps(gemm(2)).encode().replace(b'"median_s": ', b'"median_s": 0.5, "median_s": ', 1) + b"\n"
    assert line.count(b"median_s") == 2
    collected = read(gemm(1, tokens=64), line)
    assert len(collected.rows) == 1
    assert (collected.dropped[0].line, collected.dropped[0].reason) == (3, "median_s is stated twice in one object")


def test_a_row_that_took_longer_than_the_run_is_left_out() -> None:
    late = {"median_s": 0.1, "lower_quartile_s": 0.09, "upper_quartile_s": 0.11}
    collected = read(gemm(1, tokens=64), gemm(2, tokens=128), gemm(3, tokens=256, **late))
    assert len(collected.rows) == 2
    assert "milliseconds" in collected.dropped[0].reason


def scaled(record: Record) -> Record:
    return {name: value * 1000 if name.endswith("_s") and isinstance(value, float) else value for name, value in record.items()}


def test_a_file_in_milliseconds_is_refused_naming_rows() -> None:
    rows = [gemm(second, tokens=2**second) for second in range(1, 9)]
    assert len(read(*rows).rows) == 8
    with pytest.raises(InputError, match=r"lines 2, 3, 4") as refused:
        read(*(scaled(row) for row in rows))
    assert "milliseconds" in str(refused.value)


def test_recorded_steps_in_milliseconds_are_refused() -> None:
    lines = gzip.decompress((RECORDED / "vllm_cpu_grid.jsonl.gz").read_bytes()).splitlines()
    wrong = b"\n".join(json.dumps(scaled(json.loads(line))).encode() for line in lines)
    with pytest.raises(InputError, match="milliseconds"):
        read_collected(wrong, "grid")


@pytest.mark.parametrize(
    ("part", "other", "words"),
    [
        ("machine", MACHINE | {"device_name": "NVIDIA A100-SXM4-80GB"}, ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"]),
        ("machine", MACHINE | {"device_memory_bytes": 40_000_000_000}, ["device_memory_bytes", "85000000000", "40000000000"]),
        ("software", {"torch": "2.9.0", "driver": "580.1"}, ["'2.13.0'", "'2.9.0'"]),
        ("collector", "links", ["torch", "links"]),
        ("settings", {"tp": 2}, ["settings", "tp"]),
    ],
)
def test_two_machines_or_versions_in_one_file_are_refused_by_name(part: str, other: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        read(gemm(), HEADER | {part: other, "at_utc": at(5)}, gemm(6, tokens=256))
    assert all(word in str(refused.value) for word in words)


def test_a_second_run_of_the_same_machine_is_welcome() -> None:
    collected = read(
        gemm(), HEADER | {"at_utc": at(100)}, gemm(101, tokens=256), {"record": "end", "complete": True, "at_utc": at(102)}
    )
    assert (collected.runs, collected.complete, len(collected.rows)) == (2, True, 2)


def test_a_run_without_its_end_is_not_complete() -> None:
    end = {"record": "end", "complete": True, "at_utc": at(2)}
    assert read(gemm(), end).complete
    assert not read(gemm(), end, HEADER | {"at_utc": at(3)}).complete
    assert not read(gemm(), {**end, "complete": False}).complete


def test_doubled_rows_count_once() -> None:
    collected = read(gemm(1), gemm(2), gemm(3))
    assert len(collected.rows) == 1
    assert [lost.reason for lost in collected.dropped] == ["repeats line 2", "repeats line 2"]


def test_throttled_and_slow_clocks_are_flagged_and_kept() -> None:
    rows = [gemm(second, tokens=2**second) for second in range(1, 9)]
    collected = read(*rows, gemm(9, tokens=3, throttled=True), gemm(10, tokens=5, clock_hz=1.2e9))
    assert len(collected.rows) == 10
    assert [flag.line for flag in collected.flagged] == [10, 11]
    assert "throttled" in collected.flagged[0].reason
    assert "1200 MHz" in collected.flagged[1].reason
    assert "1200 MHz" in collected.report()


def test_skipped_points_are_told_unless_measured_later() -> None:
    skipped = {"record": "skipped", "reason": "out of memory", "at_utc": at(1)}
    collected = read(skipped | {"key": "gemm qkv 128"}, skipped | {"key": "gemm qkv 9"}, gemm(2))
    assert [row.key for row in collected.skipped] == ["gemm qkv 9"]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"a,b\n1,2\n", b"\x00" * 100, b"[" * 100_000, b'{"record": "gemm"}', b"{}"])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="holds no header"):
        read_collected(data, "<b>prices.csv</b>")


def test_rows_before_the_header_are_left_out() -> None:
    data = json.dumps(gemm(1, tokens=64)).encode() + b"\n" + written(gemm(2))
    collected = read_collected(data, "torch.jsonl")
    assert len(collected.rows) == 1
    assert "before the first header" in collected.dropped[0].reason


@pytest.mark.parametrize("change", [{"format": "other"}, {"format_version": 2}, {"machine": {}}, {"collector": "rm -rf"}])
def test_headers_of_other_formats_are_refused(change: Record) -> None:
    with pytest.raises(InputError, match="holds no header"):
        read(gemm(), header=HEADER | change)


def test_too_large_a_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.calibration.collected.MAX_BYTES", 100)
    with pytest.raises(InputError, match="at most 100 bytes"):
        read(gemm())


ENGINE: Record = {
    "record": "engine", "key": "m tp1 sync", "model": "m", "config": CONFIG, "mode": "sync", "max_num_seqs": 8,
    "max_num_batched_tokens": 512, "max_model_len": 4096, "async_scheduling": False, "tensor_parallel_size": 1, "block_size": 16,
    "num_gpu_blocks": 100, "cache_dtype": "auto", "dtype": "torch.bfloat16",
}  # fmt: skip


def step(second: float, **changes: Any) -> Record:
    moments = {"scheduled_at_s": second, "schedule_s": 1e-4, "output_at_s": second + 0.009, "processed_at_s": second + 0.01}
    row = {"record": "step", "engine": "m tp1 sync", "point": "p", "decode": [[4, 1, 100]], "prefill": []}
    return row | moments | {"step_s": 0.01, "at_utc": at(second + 1)} | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": "another"}, "no line before describes"),
        ({"decode": [], "prefill": []}, "must hold a row"),
        ({"decode": [[4, 200, 100]]}, "the engine allows 512"),
        ({"decode": [[4, 1, -1]]}, "decode"),
        ({"decode": [[4, 1]]}, "decode"),
        ({"prefill": [[1, 10, 0, 2]]}, "prefill"),
        ({"step_s": 0.02}, "share one unit"),
        ({"output_at_s": 1.0}, "must lie between scheduled_at_s"),
        ({"scheduled_at_s": 900.0, "output_at_s": 900.1, "processed_at_s": 900.2}, "milliseconds"),
    ],
)
def test_impossible_steps_are_left_out(changes: Record, words: str) -> None:
    header = HEADER | {"collector": "vllm"}
    collected = read(ENGINE | {"at_utc": at(0)}, step(1), step(2), step(3, **changes), header=header)
    assert len(collected.of(Step)) == 2
    assert words in collected.dropped[0].reason


TIMES = {"median_s": 0.01, "lower_quartile_s": 0.009, "upper_quartile_s": 0.011, "samples": 30}
REQUEST = {"prompt_tokens": 99, "output_tokens": 64, "chunks": 64, "ttft_s": 0.03, "e2e_s": 0.7}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Ttft, {"prompt_tokens": 16}),
        (Plateau, {"concurrency": 4, "context_tokens": 130.5, "tokens_per_chunk": 1.0, "requests": [REQUEST]}),
        (Injection, {"concurrency": 4, "context_tokens": 20.0, "injected_tokens": 512, "ttft_s": 0.08}),
        (HostCopy, {"way": "both", "size_bytes": 4096, "calls_per_sample": 10}),
        (AllReduce, {"gpus": 8, "size_bytes": 65536, "in_graph": True, "backend": "nccl", "calls_per_sample": 10}),
    ],
)
def test_every_kind_is_read(kind: Any, fields: Record) -> None:
    collected = read({"record": kind.kind, "key": "k", **TIMES, **fields, "at_utc": at(30)})
    assert collected.dropped == ()
    assert len(collected.of(kind)) == 1


@pytest.mark.parametrize("request_changes", [{"ttft_s": 0.9}, {"e2e_s": -1}, {"output_tokens": 0}, {"e2e_s": 700.0}])
def test_impossible_requests_are_left_out(request_changes: Record) -> None:
    fields = {"concurrency": 4, "context_tokens": 130.5, "tokens_per_chunk": 1.0, "requests": [REQUEST | request_changes]}
    collected = read({"record": "plateau", "key": "k", **TIMES, **fields, "at_utc": at(5)}, gemm(6), gemm(7, tokens=9))
    assert collected.of(Plateau) == ()
    assert len(collected.dropped) == 1


def test_engines_say_how_much_they_hold() -> None:
    engine = recorded("vllm_cpu_collected").of(Engine)[0]
    assert engine.num_gpu_blocks * engine.block_size == 262144
    assert all(point.steps > 0 for point in recorded("vllm_cpu_collected").of(Point))


def flip(data: bytes, place: int, value: int) -> bytes:
    return data[:place] + bytes([value]) + data[place + 1 :]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(min_value=0),
    st.integers(0, 255),
    st.sampled_from([flip, lambda d, p, _: d[:p], lambda d, p, v: d[:p] + bytes([v]) + d[p:]]),
)
def test_no_damage_of_a_byte_is_taken_for_data_silently(place: int, value: int, damage: Callable[[bytes, int, int], bytes]) -> None:
    """Every line is a row, a header, an end, or reported; and whatever happens is an InputError, never another one."""
    whole = written(gemm(), gemm(2, tokens=256), {"record": "end", "complete": True, "at_utc": at(3)})
    data = damage(whole, place % len(whole), value)
    try:
        collected = read_collected(data, "damaged")
    except InputError:
        return
    lines = sum(bool(line.strip()) for line in data.split(b"\n"))
    ends = sum(b'"end"' in line for line in data.split(b"\n"))
    told = len(collected.rows) + len(collected.dropped) + collected.runs
    assert lines - ends <= told <= lines
