"""The endpoint collector against a server whose delays are known."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.collectors.fakes import FakeServer, collector

LOOSE = 0.35


@pytest.fixture(scope="module")
def http() -> ModuleType:
    return collector("http")


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(http: ModuleType, server: FakeServer, out: Path, *more: str) -> int:
    small = ["--max-concurrency", "4", "--max-prompt-tokens", "128", "--output", "24"]
    status: int = http.main(["--url", server.url, "--out", str(out), *small, *more])
    return status


def client(http: ModuleType, server: FakeServer, tmp_path: Path, *more: str) -> Any:
    options = http.parse(["--url", server.url, "--out", str(tmp_path / "x"), *more])
    options.model, options.max_seconds = "fake-8b", 60
    return http.Client(http.server_of(options), options)


def test_known_delays_are_measured(http: ModuleType, fake_server: FakeServer, tmp_path: Path) -> None:
    out = tmp_path / "http.jsonl"
    assert run(http, fake_server, out) == 0
    rows = records(out)
    header, end = rows[0], rows[-1]
    assert header["collector"] == "http"
    assert header["software"] == {"engine": "0.33.0"}
    assert header["settings"]["kv_cache"] == {"block_size": "16", "num_gpu_blocks": "2756"}
    assert (end["record"], end["complete"]) == ("end", True)
    ttft = {row["prompt_tokens"]: row["median_s"] for row in rows if row["record"] == "ttft"}
    assert ttft[16] == pytest.approx(0.02 + 16e-4, rel=LOOSE)
    assert ttft[128] == pytest.approx(0.02 + 128e-4, rel=LOOSE)
    assert ttft[128] > ttft[16]
    plateaus = [row for row in rows if row["record"] == "plateau"]
    assert [row["concurrency"] for row in plateaus] == [1, 4]
    for row in plateaus:
        assert row["median_s"] == pytest.approx(0.01, rel=LOOSE)
        assert row["tokens_per_chunk"] == 1.0
        assert 99 < row["context_tokens"] < 99 + 24
        assert len(row["requests"]) == 2 * row["concurrency"]


def test_prompts_are_distinct_token_ids_and_outputs_full(http: ModuleType, fake_server: FakeServer, tmp_path: Path) -> None:
    run(http, fake_server, tmp_path / "http.jsonl", "--max-requests", "12")
    prompts = [tuple(request["prompt"]) for request in fake_server.seen]
    assert len(set(prompts)) == len(prompts)
    assert all(request["ignore_eos"] and request["stream"] for request in fake_server.seen)


def test_words_are_sent_where_token_ids_are_not_taken(http: ModuleType, fake_server: FakeServer, tmp_path: Path) -> None:
    one = client(http, fake_server, tmp_path, "--prompts", "words")
    one.send(http.Probe(20, 2))
    assert len(fake_server.seen[0]["prompt"].split()) == 20


def test_a_joining_prompt_stalls_the_decoding_requests(http: ModuleType, fake_server: FakeServer, tmp_path: Path) -> None:
    one = client(http, fake_server, tmp_path)
    row = http.injection(one, 2, 16, 1000)
    assert row["injected_tokens"] == 1000
    assert row["median_s"] == pytest.approx(0.12, rel=LOOSE)
    assert row["ttft_s"] == pytest.approx(0.12, rel=LOOSE)


def test_a_line_without_end_is_a_failed_request(http: ModuleType, fake_server: FakeServer, tmp_path: Path) -> None:
    fake_server.body = b"data: " + b"x" * http.MOST_LINE_BYTES
    with pytest.raises(http.FailedRequestError, match=f"{http.MOST_LINE_BYTES:,} bytes or longer"):
        client(http, fake_server, tmp_path).send(http.Probe(20, 2))


def test_the_same_command_goes_on_where_it_stopped(http: ModuleType, fake_server: FakeServer, tmp_path: Path) -> None:
    out = tmp_path / "http.jsonl"
    assert run(http, fake_server, out, "--max-requests", "12") == 3
    first = {row["key"] for row in records(out) if "key" in row}
    asked = len(fake_server.seen)
    assert asked <= 12
    assert run(http, fake_server, out) == 0
    keys = [row["key"] for row in records(out) if "key" in row]
    assert first < set(keys)
    assert len(keys) == len(set(keys))


def test_time_is_bounded(http: ModuleType, fake_server: FakeServer, tmp_path: Path) -> None:
    fake_server.ttft_s = 0.6
    assert run(http, fake_server, tmp_path / "http.jsonl", "--max-seconds", "1") == 3
    assert len(fake_server.seen) <= 8


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:8000",
        "http://example.com",
        "http://127.0.0.1.example.com",
        "https://[2001:db8::1]:1",
        "http://0.0.0.0:8000",
    ],
)
def test_other_machines_need_permission(http: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        http.main(["--url", url, "--out", str(tmp_path / "x.jsonl")])
    assert stopped.value.code == 2
    assert "--allow-host" in capsys.readouterr().err
    assert not (tmp_path / "x.jsonl").exists()


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1", "http://user:secret@127.0.0.1", "http://127.0.0.1:99999", "127.0.0.1", "http://a b"]
)
def test_addresses_that_make_no_sense_are_refused(
    http: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        http.main(["--url", url, "--out", str(tmp_path / "x.jsonl")])
    assert stopped.value.code == 2
    assert "Give for example http://127.0.0.1:8000" in capsys.readouterr().err


def test_the_key_is_sent_and_never_written(
    http: ModuleType, fake_server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-very-secret")
    out = tmp_path / "http.jsonl"
    assert run(http, fake_server, out, "--api-key-env", "SERVER_KEY", "--max-requests", "3") == 3
    assert fake_server.authorization == {"Bearer sk-very-secret"}
    assert "secret" not in out.read_text()


def test_a_server_that_refuses_ends_the_run_with_its_reason(
    http: ModuleType, fake_server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_server.status = 400
    with pytest.raises(SystemExit) as stopped:
        run(http, fake_server, tmp_path / "http.jsonl", "--max-requests", "12")
    assert stopped.value.code == 2
    assert "status 400" in capsys.readouterr().err


def test_a_last_chunk_without_a_token_is_not_counted(http: ModuleType, fake_server: FakeServer, tmp_path: Path) -> None:
    fake_server.closing_chunk = True
    probe = client(http, fake_server, tmp_path).send(http.Probe(16, 4))
    assert probe.fields()["chunks"] == probe.fields()["output_tokens"] == 4


@pytest.mark.parametrize(
    "body", [b"", b"data: {", b"data: [DONE]\n", b'data: {"error": "overloaded"}\n', b"<html>\n" * 50, b"data: " + b"[" * 10**5]
)
def test_broken_answers_are_reported_and_not_recorded_as_times(
    http: ModuleType, fake_server: FakeServer, tmp_path: Path, body: bytes
) -> None:
    fake_server.body = body
    one = client(http, fake_server, tmp_path)
    with pytest.raises(http.FailedRequestError):
        one.send(http.Probe(16, 4))


@pytest.mark.parametrize(
    "usage", ["null", "[1]", '{"completion_tokens": null}', '{"completion_tokens": "4", "prompt_tokens": -16}']
)
def test_counts_that_a_server_does_not_state_are_the_clients_own(
    http: ModuleType, fake_server: FakeServer, tmp_path: Path, usage: str
) -> None:
    fake_server.body = b'data: {"choices": [{"text": "a"}], "usage": ' + usage.encode() + b"}\n"
    fields = client(http, fake_server, tmp_path).send(http.Probe(16, 1)).fields()
    assert (fields["prompt_tokens"], fields["output_tokens"], fields["chunks"]) == (16, 1, 1)


@pytest.mark.parametrize("body", ['{"data": 5}', '{"data": [1]}', "[1]", '{"data": {"id": "fake-8b"}}'])
def test_a_list_of_models_that_is_none_is_refused(
    http: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], body: str
) -> None:
    server = http.Server("http", "127.0.0.1", 1, "/v1", None, 1.0)
    monkeypatch.setattr(http.Server, "lines", lambda *_: iter([body]))
    with pytest.raises(SystemExit):
        http.server_facts(server, None)
    assert "the server offers []" in capsys.readouterr().err


def test_no_server_is_said_so(http: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        http.main(["--url", "http://127.0.0.1:9", "--out", str(tmp_path / "x.jsonl")])
    assert stopped.value.code == 2
    assert "Check that the server is up" in capsys.readouterr().err


def test_steady_spans_hold_only_whole_batches(http: ModuleType) -> None:
    one, two = (http.Probe(8, 8) for _ in range(2))
    one.sent_s, one.chunks_s = 0.0, [1.0, 2.0, 3.0, 4.0, 5.0]
    two.sent_s, two.chunks_s = 1.5, [2.5, 3.5, 4.5]
    assert http.steady_spans([one, two], 2) == [(2.5, 4.5)]
    assert sorted(http.steady_gaps([one, two], 2)) == [(1.0, 1), (1.0, 2), (1.0, 3)]
