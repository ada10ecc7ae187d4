"""What a replay hands out: requests as CSV and parquet, the result as JSON and text, and the shell's verb."""

import csv
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from planner.cli import EXIT_INPUT, EXIT_OK, main
from planner.exporters.replay import replay_document, replay_text, requests_csv, requests_parquet, requests_table
from planner.replay import Replay, replay
from planner.simulator import values_s
from planner.workloads import RequestClass
from tests.replay.replays import ONE_GPU, one_gpu_plan, replayed


def test_csv_holds_every_request_with_its_latencies() -> None:
    found = replayed(max_num_seqs=32, requests=300)
    rows = list(csv.DictReader(io.StringIO(requests_csv(found).decode())))
    assert len(rows) == 300
    assert np.allclose([float(row["ttft_s"]) for row in rows], values_s(found.shown.client, "ttft"))
    assert [int(row["prompt_tokens"]) for row in rows] == found.requests.prompt_tokens.tolist()
    assert sum(row["within_targets"] == "true" for row in rows) == int(found.shown.met.sum())


def test_a_rejected_request_has_empty_cells() -> None:
    found = replayed(requests=300)
    table = requests_table(found)
    assert table["tpot_s"].null_count == int((found.requests.output_tokens == 1).sum())


@pytest.mark.parametrize("name", ['=HYPERLINK("http://example.org")', "@sum", "+1", "-2", " =1+1"])
def test_no_class_name_runs_as_a_formula(name: str) -> None:
    found = replayed(requests=20)
    named = found.plan.workload.model_copy(update={"classes": (RequestClass.model_construct(name=name, share=1.0),)})
    hostile = Replay(
        **{
            field: getattr(found, field)
            for field in ("candidate", "settings", "rate_rps", "seed", "requests", "planned", "changed")
        },
        plan=type(found.plan)(**{field: getattr(found.plan, field) for field in found.plan.__slots__} | {"workload": named}),
    )
    rows = list(csv.DictReader(io.StringIO(requests_csv(hostile).decode())))
    assert {row["class"] for row in rows} == {"'" + name}


def test_parquet_holds_the_same_and_says_what_was_run() -> None:
    found = replayed(requests=300)
    table = pq.read_table(io.BytesIO(requests_parquet(found)))
    assert table.column_names == requests_table(found).column_names
    assert np.array_equal(table["finish_s"].to_numpy(), found.planned.client.finish_s)
    assert json.loads(table.schema.metadata[b"replay"])["requests"] == 300
    assert json.loads(table.schema.metadata[b"scenario"])["seed"] == 1


def test_document_is_json_without_nan_even_for_one_request() -> None:
    for found in (replayed(max_num_seqs=24), replayed(requests=1)):
        document = json.loads(json.dumps(replay_document(found), allow_nan=False))
        assert document["planned"]["verdict"] == found.planned.result.verdict
        assert document["requests"] == len(found.requests)
        assert (document["changed"] is None) == (found.changed is None)


def test_text_gives_latencies_and_differences() -> None:
    text = replay_text(replayed(max_num_seqs=24))
    for part in ("TTFT", "queue", "max_num_seqs 24", "seed 1", "Changed less planned", "waits for"):
        assert part in text
    assert "Changed less planned" not in replay_text(replayed())


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(ONE_GPU), encoding="utf-8")
    return str(path)


def test_simulate_prints_json_and_writes_files(scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, output = tmp_path / "log.json.gz", tmp_path / "requests.parquet"
    flags = ["--requests", "60", "--rate", "6", "--seed", "3", "--max-num-seqs", "16", "--log", str(log), "--output", str(output)]
    assert main(["simulate", "--scenario", scenario, *flags, "--json"]) == EXIT_OK
    document = json.loads(capsys.readouterr().out)
    assert (document["requests"], document["rate_rps"], document["seed"]) == (60, 6.0, 3)
    assert document["changed"]["engine"]["max_num_seqs"] == 16
    (case,) = json.loads(gzip.decompress(log.read_bytes()))
    assert case["engine"]["max_num_seqs"] == 16
    assert pq.read_table(output).num_rows == 60


def test_simulate_prints_text(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--scenario", scenario, "--requests", "50"]) == EXIT_OK
    assert "keeps up with" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags",
    [
        ["--requests", "0"],
        ["--rate", "nan"],
        ["--recorded", "--arrival-cv", "2"],
        ["--output", "requests.xlsx"],
        ["--max-num-seqs", "100000"],
    ],
)
def test_wrong_input_exits_with_two_and_one_line(scenario: str, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--scenario", scenario, *flags]) == EXIT_INPUT
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_that_does_not_exist_is_refused(scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--scenario", scenario, "--requests", "20", "--output", str(tmp_path / "no" / "x.csv")]) == EXIT_INPUT
    assert "can't be written" in capsys.readouterr().err


def test_replay_of_the_plan_takes_defaults() -> None:
    assert replay(one_gpu_plan()).settings.requests == 20_000
