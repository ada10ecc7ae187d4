"""Importers: every known format with its units, nothing lost without a count."""

import gzip
import io
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.provenance import Source
from planner.workloads import ColumnMap, RowsLengths, import_rows, load_trace, load_workload, workload_from_rows
from planner.workloads.arrivals import PoissonArrivals, TraceArrivals
from planner.workloads.importers import ImportReport, measured_peaks
from planner.workloads.importers.cleaning import coarse_tick_s

# Two requests, 1.5 s apart, 100 → 10 and 2,000 → 30 tokens, in each format's own words and units.
FORMATS = {
    "headroom": "arrival_s,prompt_tokens,output_tokens\n7.25,100,10\n8.75,2000,30\n",
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,100,10\n2023-11-16 18:17:05.4799600,2000,30\n",
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,100,10\n2.0,2000,30\n",
    "splitwise-sim": "request_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,0,1,100,10\n1,1.5,1,2000,30\n",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Log Type\n5,ChatGPT,100,10,API\n6.5,GPT-4,2000,30,API\n",
    "mooncake": '{"timestamp": 0, "input_length": 100, "output_length": 10}\n'
    '{"timestamp": 1500, "input_length": 2000, "output_length": 30}\n',
    "bailian": '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 10.0, "input_length": 100, "output_length": 10, "turn": 1}\n'
    '{"chat_id": 2, "parent_chat_id": -1, "timestamp": 11.5, "input_length": 2000, "output_length": 30, "turn": 1}\n',
    "llmservingsim": "input_toks,output_toks,arrival_time_ns\n100,10,0\n2000,30,1500000000\n",
    "baseten": "timestamp_start_unix_ms,input_tokens,output_tokens\n1700000000000,100,10\n1700000001500,2000,30\n",
    "litellm": "request_id,prompt_tokens,completion_tokens,startTime,cache_hit,status\n"
    "r1,100,10,2026-11-02T08:00:00.120Z,False,success\nr2,2000,30,2026-11-02T08:00:01.620Z,,success\n",
    "columns": "isl,osl,timestamp_ms\n100,10,0\n2000,30,1500\n",
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_format_gives_the_same_requests(name: str, packed: bool) -> None:
    data = FORMATS[name].encode()
    imported = import_rows(gzip.compress(data) if packed else data, "service")
    assert imported.report.format == name
    assert (imported.report.rows_read, imported.report.rows_kept) == (2, 2)
    assert imported.trace.prompt_tokens.tolist() == [100, 2000]
    assert imported.trace.output_tokens.tolist() == [10, 30]
    assert imported.trace.arrival_s == pytest.approx([0.0, 1.5])


def test_parquet_and_frames_and_json_arrays_are_read_too() -> None:
    frame = pd.DataFrame(
        {"ContextTokens": [100, 2000], "GeneratedTokens": [10, 30], "TIMESTAMP": pd.to_datetime(["2024-05-10", "2024-05-11"])}
    )
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    array = frame.assign(TIMESTAMP=["2024-05-10", "2024-05-11"]).to_json(orient="records").encode()
    for data in (buffer.getvalue(), frame, array):
        trace = import_rows(data, "service").trace
        assert trace.prompt_tokens.tolist() == [100, 2000]
        assert trace.arrival_s == pytest.approx([0.0, 86400.0])


def test_azure_timestamps_of_mixed_form() -> None:
    rows = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.001163+00:00,5,5\n2024-05-10 00:00:01+00:00,5,5\n"
    assert import_rows(rows, "a").trace.arrival_s == pytest.approx([0.0, 0.998837])


@pytest.mark.parametrize(
    "data",
    [
        "\ufeffprompt_tokens,output_tokens\n5,6\n".encode(),
        "prompt_tokens,output_tokens\r\n5,6\r\n".encode("utf-16"),
        b"prompt_tokens;output_tokens\n5;6\n",
        b"prompt_tokens\toutput_tokens\n5\t6\n",
        b"prompt_tokens,output_tokens\r5,6\r",
        b"\n\nprompt_tokens,output_tokens\n\n5,6\n\n",
        b" Prompt Tokens , Output Tokens \n5,6\n",
        b"prompt_tokens,output_tokens\n5.0,6.0\n",
        b"prompt_tokens,output_tokens,\n5,6,\n",
        "prompt_tokens,output_tokens,note\n5,6,caf\xe9\n".encode("latin-1"),
        b'note,prompt_tokens,output_tokens\n"two\nlines, and a comma",5,6\n',
        b'{"prompt_tokens": 5, "output_tokens": 6, "text": "<b>"}\n\n',
        b'\xef\xbb\xbf{"prompt_tokens": 5, "output_tokens": 6}',
    ],
)
def test_spellings_of_the_same_table(data: bytes) -> None:
    trace = import_rows(data, "spelling").trace
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([5], [6])


def test_losses_are_counted_by_reason() -> None:
    rows = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + b"".join(
        [
            b"1,m,10,0,10,x\n",
            b"2,m,0,5,5,x\n",
            b"3,m,,5,5,x\n",
            b"4,m,7,,7,x\n",
            b"5,m,8,9,17,x\n",
            b"6,m,8,NaN,8,x\n",
            b",m,8,9,17,x\n",
        ]
    )
    report = import_rows(rows, "burst").report
    assert report.rows_read == 7
    assert report.rows_kept == 1
    assert dict(report.dropped) == {
        "prompt_tokens is empty": 1,
        "prompt_tokens is 0": 1,
        "output_tokens is empty": 2,
        "output_tokens is 0": 1,
        "arrival is empty": 1,
    }
    assert "1 of 7 rows kept" in report.sentence()


def test_gateway_rows_without_gpu_work_are_dropped() -> None:
    rows = (
        b"request_id,prompt_tokens,completion_tokens,startTime,cache_hit,status\n"
        b"a,10,5,2026-11-02T08:00:00Z,False,success\n"
        b"b,10,5,2026-11-02T08:00:01Z,True,success\n"
        b"c,0,0,2026-11-02T08:00:02Z,False,failure\n"
        b"d,10,5,2026-11-02T08:00:03Z,,\n"
    )
    report = import_rows(rows, "gateway").report
    assert dict(report.dropped) == {"answered by the gateway's response cache": 1, "status is failure": 1}
    assert report.rows_kept == 2


def test_order_and_repeats_are_told_and_rows_stay_whole() -> None:
    rows = b"arrival_s,prompt_tokens,output_tokens\n5,1,11\n3,2,12\n5,3,13\n"
    imported = import_rows(rows, "shuffled")
    assert imported.trace.arrival_s == pytest.approx([0, 2, 2])
    assert imported.trace.prompt_tokens.tolist() == [2, 1, 3]
    assert imported.trace.output_tokens.tolist() == [12, 11, 13]
    notes = " ".join(imported.report.notes)
    assert "1 rows came before an earlier one" in notes
    assert "1 rows share their time" in notes


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**5), st.integers(0, 10**4)), min_size=1, max_size=40))
@settings(max_examples=30, deadline=None)
def test_no_row_is_lost_without_a_count(rows: list[tuple[float, int, int]]) -> None:
    text = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{t!r},{p},{o}\n" for t, p, o in rows)
    useful = [(p, o) for _, p, o in rows if p and o]
    if not useful:
        with pytest.raises(InputError, match="must hold a row"):
            import_rows(text.encode(), "random")
        return
    imported = import_rows(text.encode(), "random")
    report, trace = imported.report, imported.trace
    assert report.rows_read == len(rows) == report.rows_kept + sum(report.dropped.values())
    assert sorted(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)) == sorted(useful)
    assert trace.arrival_s is not None
    assert trace.arrival_s[0] == 0
    assert (np.diff(trace.arrival_s) >= 0).all()


def test_report_refuses_a_loss_without_reason() -> None:
    with pytest.raises(AssertionError, match="10 rows read"):
        ImportReport("x", 10, 9)


def test_numeric_times_without_unit_are_judged_by_size() -> None:
    for factor, unit in ((1, "s"), (10**3, "ms"), (10**6, "us"), (10**9, "ns")):
        start = 1_700_000_000 * factor
        rows = f"time,prompt_len,output_len\n{start},5,5\n{start + 2 * factor},5,5\n".encode()
        imported = import_rows(rows, "clock")
        assert imported.trace.arrival_s == pytest.approx([0, 2], abs=1e-3)
        assert f"taken as {unit}" in " ".join(imported.report.notes)


def test_columns_can_be_mapped() -> None:
    rows = b"when,in,out,other\n1000,5,6,x\n3000,7,8,y\n"
    with pytest.raises(InputError, match="header is 'when, in, out, other'"):
        import_rows(rows, "own")
    trace = import_rows(rows, "own", columns=ColumnMap("In", "Out", "When", "ms")).trace
    assert trace.arrival_s == pytest.approx([0, 2])
    assert trace.output_tokens.tolist() == [6, 8]
    with pytest.raises(InputError, match="columns is 'answer': must be one of when, in, out, other"):
        import_rows(rows, "own", columns=ColumnMap("in", "answer"))


def test_block_hashes_and_their_size_are_read() -> None:
    lines = [{"timestamp": 3000 * i, "input_length": 1000, "output_length": 5, "hash_ids": [0, i + 1]} for i in range(4)]
    imported = import_rows("\n".join(map(json.dumps, lines)).encode(), "moon")
    hashes = imported.trace.block_hashes
    assert hashes is not None
    assert hashes.block_tokens == 512
    assert hashes.row(3).tolist() == [0, 4]
    workload = workload_from_rows("\n".join(map(json.dumps, lines)).encode(), "moon")
    assert isinstance(workload.lengths, RowsLengths)
    assert workload.lengths.draw == "in_order"
    assert workload.prefix_hits is not None
    assert workload.prefix_hits.unbounded_hit_rate == pytest.approx(3 * 512 / 4000, abs=1e-4)
    broken = [line | {"hash_ids": [1, 2, 3]} for line in lines]
    report = import_rows("\n".join(map(json.dumps, broken)).encode(), "moon").report
    assert "no block size explains" in " ".join(report.notes)


def test_coarse_ticks_are_found() -> None:
    rng = np.random.default_rng(0)
    fine = np.sort(rng.random(500) * 1000)
    assert coarse_tick_s(fine) is None
    assert coarse_tick_s(np.floor(fine)) == pytest.approx(1.0)
    assert coarse_tick_s(np.floor(fine / 60) * 60) == pytest.approx(60.0)
    mooncake = load_trace("mooncake-conversation").arrival_s
    assert mooncake is not None
    assert coarse_tick_s(mooncake) == pytest.approx(3.0, abs=0.01)


def test_workload_of_rows_is_known_by_its_id_in_this_process() -> None:
    times = np.cumsum(np.random.default_rng(1).exponential(0.5, 400))
    frame = pd.DataFrame({"arrival_s": times, "prompt_tokens": np.arange(1, 401), "output_tokens": np.arange(400, 0, -1)})
    workload = workload_from_rows(frame, "Our Service (EU)")
    assert workload.id.startswith("our-service-eu-")
    assert workload.id == workload_from_rows(frame, "Our Service (EU)").id
    assert load_workload(workload.id) == workload
    assert isinstance(workload.arrivals, TraceArrivals)
    assert workload.peak_factor is None
    assert isinstance(workload.source_for("lengths"), Source)
    requests = workload.sample_requests(1000, 4.0, 1)
    assert (requests.prompt_tokens + requests.output_tokens == 401).all()
    assert len(requests) / requests.arrival_s[-1] == pytest.approx(4.0, rel=0.01)


def test_rows_without_times_arrive_as_poisson() -> None:
    for rows in (b"prompt_tokens,output_tokens\n5,6\n7,8\n", b"ContextTokens,GeneratedTokens,TIMESTAMP\n5,6,XXX\n7,8,XXX\n"):
        workload = workload_from_rows(rows, "lengths only")
        assert isinstance(workload.arrivals, PoissonArrivals)
        assert load_trace(workload.id).arrival_s is None


def test_peaks_of_a_long_trace_are_measured() -> None:
    hours = np.repeat(np.arange(48), np.where(np.arange(48) % 24 == 12, 300, 100))
    arrival_s = np.sort(hours * 3600.0 + np.concatenate([np.arange(n) * 3600.0 / n for n in np.bincount(hours)]))
    hour, minute = measured_peaks(np.append(arrival_s, 48 * 3600.0))
    assert hour == pytest.approx(300 / (100 * 26 / 24), rel=0.01)
    assert minute is not None
    assert minute >= hour
    assert measured_peaks(arrival_s[:100]) == (None, None)


def test_public_trace_survives_a_round_trip_through_csv() -> None:
    trace = load_trace("azure-code-2023")
    frame = pd.DataFrame({"arrival_s": trace.arrival_s, "prompt_tokens": trace.prompt_tokens, "output_tokens": trace.output_tokens})
    again = import_rows(frame.to_csv(index=False).encode(), "again").trace
    assert again.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert again.arrival_s == pytest.approx(trace.arrival_s)
