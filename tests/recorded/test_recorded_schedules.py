"""The simulator decides as vLLM's own scheduler did, step by step."""

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.recorded.replay_schedules import differences, load_cases, main, replay_compiled, replay_plain

SUBSET = Path(__file__).with_name("schedules_subset.json.gz")
CASES = load_cases(SUBSET)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
@pytest.mark.parametrize("replay", [replay_compiled, replay_plain])
def test_every_recorded_step_is_repeated(case: dict[str, Any], replay: Callable[[Any], Any]) -> None:
    assert list(differences(case, replay(case))) == []


def _write(path: Path, cases: list[dict[str, Any]]) -> Path:
    path.write_bytes(gzip.compress(json.dumps(cases).encode()))
    return path


def _tiny() -> dict[str, Any]:
    return copy.deepcopy(next(case for case in CASES if case["name"] == "tiny-sync"))


def test_command_passes_a_file_of_equal_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(_write(tmp_path / "cases.json.gz", [_tiny()]))]) == 0
    assert "tiny-sync: 205 steps, no difference" in capsys.readouterr().out


def _more_tokens(case: dict[str, Any]) -> str:
    case["result"]["steps"][7]["tokens"] = {key: value + 1 for key, value in case["result"]["steps"][7]["tokens"].items()}
    return "step 7: tokens"


def _other_block(case: dict[str, Any]) -> str:
    case["result"]["steps"][3]["used_blocks"] += 1
    return "step 3: used_blocks"


def _preempted(case: dict[str, Any]) -> str:
    case["result"]["steps"][5]["preempted"] = [0]
    return "step 5: preempted"


def _later(case: dict[str, Any]) -> str:
    case["result"]["finish_s"]["4"] += 3e-9
    return "finish_s[4]"


def _shorter(case: dict[str, Any]) -> str:
    del case["result"]["steps"][-1]
    return "205 steps, recorded 204"


@pytest.mark.parametrize("change", [_more_tokens, _other_block, _preempted, _later, _shorter])
def test_command_names_the_first_difference(
    change: Callable[[dict[str, Any]], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = _tiny()
    expected = change(case)
    assert main([str(_write(tmp_path / "cases.json.gz", [case]))]) == 1
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not gzip", "gzip"),
        (gzip.compress(b"not json", mtime=0), "JSON"),
        (gzip.compress(b"{}", mtime=0), "list of cases"),
        (gzip.compress(b"[1]", mtime=0), "case 0 lacks"),
        (gzip.compress(b'[{"name": "x"}]', mtime=0), "lacks engine"),
    ],
)
def test_command_refuses_other_files(content: bytes, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json.gz"
    path.write_bytes(content)
    assert main([str(path)]) == 2
    assert reason in capsys.readouterr().err


def test_command_refuses_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.json.gz")]) == 2
    assert "can't be read" in capsys.readouterr().err


def test_a_case_with_an_unknown_knob_is_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = _tiny()
    case["engine"]["unheard_of"] = 1
    assert main([str(_write(tmp_path / "cases.json.gz", [case]))]) == 1
    assert "can't be replayed" in capsys.readouterr().out


def test_a_request_that_the_engine_refuses_has_no_times_in_either(tmp_path: Path) -> None:
    case = _tiny()
    length = case["engine"]["max_model_len"]
    case["requests"].append({"id": 999, "arrival_s": 0.0, "prompt_len": length, "output_len": 1})
    path = str(_write(tmp_path / "cases.json.gz", [case]))
    assert main([path]) == main([path, "--plain"]) == 0
