"""Tables of measured results: what is read, and what is named instead of believed."""

import gzip
from pathlib import Path

import pytest

from planner.accuracy.kv_capacity import is_kv_capacity
from planner.calibration.measurement_tables import read_measurements
from planner.calibration.measurements import MAX_ROWS, Measurement, Unreadable, number, read_table
from planner.errors import InputError

OWN = "gpu,engine,model,scenario,prompt_tokens,output_tokens,concurrency,tpot_mean_s\n"
ROW = "h100-80g-sxm,vLLM,llama-3.1-8b-instruct,closed-loop,512,256,8,0.008\n"
COMMON = "source,software,model,gpu,n_gpu,tp,scenario,prompt_len,output_len,length_kind,rate_rps,tpot_mean_ms,notes\n"


def table(tmp_path: Path, text: str | bytes, name: str = "rows.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def only(tmp_path: Path, text: str) -> Measurement:
    (row,) = read_measurements(table(tmp_path, text))
    assert isinstance(row, Measurement), row
    return row


def fault(tmp_path: Path, text: str) -> Unreadable:
    (row,) = read_measurements(table(tmp_path, text))
    assert isinstance(row, Unreadable), row
    return row


def test_own_schema(tmp_path: Path) -> None:
    row = only(tmp_path, OWN + ROW)
    assert (row.prompt_tokens, row.concurrency, row.tpot_mean_s, row.ttft_s) == (512.0, 8, 0.008, None)


def test_common_layout_turns_milliseconds_into_seconds(tmp_path: Path) -> None:
    row = only(tmp_path, COMMON + "x,vLLM,Llama-3.1-8B,H100,1,1,rate,512,256,fixed,2.5,8.5,paced arrivals\n")
    assert row.tpot_mean_s == pytest.approx(0.0085)
    assert (row.scenario, row.rate_rps, row.evenly_paced) == ("open-loop", 2.5, True)


@pytest.mark.parametrize("note", ["disagg P1x(tp1) D4x(tp8)", "P/D split"])
def test_split_serving_is_noticed(tmp_path: Path, note: str) -> None:
    assert only(tmp_path, COMMON + f"x,vLLM,m,H100,1,1,rate,512,256,fixed,2.5,8.5,{note}\n").disaggregated


@pytest.mark.parametrize("note", ["MTP on", "eagle3 drafts", "speculative"])
def test_drafts_are_noticed(tmp_path: Path, note: str) -> None:
    assert only(tmp_path, COMMON + f"x,vLLM,m,H100,1,1,rate,512,256,fixed,2.5,8.5,{note}\n").speculative


def test_silicon_layout_tells_engines_from_copies(tmp_path: Path) -> None:
    header = (
        "backend,model_path,system,isl,osl,gemm_quant_mode,batch_size,concurrency,tp_size,pp_size,moe_tp_size,moe_ep_size,source,"
    )
    header += "silicon_ttft_ms,silicon_tpot_ms,aic_tpot_ms\n"
    row = only(tmp_path, header + "vllm,Qwen/Qwen3-32B,h100_sxm,1024,128,,8,32,2,1,1,1,aic-auto-gap-analysis,150,18,17\n")
    assert (row.gpu_count, row.tp, row.concurrency, row.dp) == (8, 2, 32, 1)
    assert (row.ttft_s, row.peer_tpot_s) == (pytest.approx(0.15), pytest.approx(0.017))
    copies = only(
        tmp_path, header + "trtllm,deepseek-ai/DeepSeek-R1,b200_sxm,4000,1000,fp8,5,40,8,1,1,8,aic-auto-gap-analysis,150,18,\n"
    )
    assert (copies.gpu_count, copies.dp) == (8, 8)


@pytest.mark.parametrize(
    ("cell", "field"),
    [("nan", "tpot_mean_s"), ("-0.008", "tpot_mean_s"), ("inf", "tpot_mean_s"), ("=1+1", "tpot_mean_s"), ("0", "tpot_mean_s")],
)
def test_impossible_figures_are_named(tmp_path: Path, cell: str, field: str) -> None:
    found = fault(tmp_path, OWN + ROW.replace("0.008", cell))
    assert (found.line, found.field) == (2, field)


def test_a_figure_in_the_wrong_unit_is_named(tmp_path: Path) -> None:
    """80 ms a token written as 80, seconds, is 80 s a token."""
    assert fault(tmp_path, OWN + ROW.replace("0.008", "80")).field == "tpot_mean_s"


def test_a_row_that_is_cut_off_is_named_and_the_others_stay(tmp_path: Path) -> None:
    rows = read_measurements(table(tmp_path, OWN + ROW + ROW[: len(ROW) // 2]))
    assert isinstance(rows[0], Measurement)
    assert rows[1] == Unreadable(3, "row", "has not as many cells as the header")


def test_missing_and_unknown_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lacks"):
        read_measurements(table(tmp_path, "gpu,engine,model\nx,y,z\n"))
    with pytest.raises(InputError, match="unknown columns"):
        read_measurements(table(tmp_path, OWN.replace("tpot_mean_s", "tpot")))
    with pytest.raises(InputError, match="columns of"):
        read_measurements(table(tmp_path, "a,b\n1,2\n"))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"\x1f\x8bdamaged", b"one\n1\n", b"a,a\n1,2\n"])
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError):
        read_measurements(table(tmp_path, content))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        read_measurements(tmp_path / "none.csv")


def test_compressed_tables_are_read_and_bounded(tmp_path: Path) -> None:
    (row,) = read_measurements(table(tmp_path, gzip.compress((OWN + ROW).encode()), "rows.csv.gz"))
    assert isinstance(row, Measurement)
    bomb = gzip.compress(b"a,b\n" + b"x" * (65 * 2**20))
    with pytest.raises(InputError, match="at most"):
        read_measurements(table(tmp_path, bomb, "bomb.csv.gz"))


def test_too_many_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at most"):
        read_measurements(table(tmp_path, "a,b\n" + "1,2\n" * (MAX_ROWS + 1)))


def test_a_column_that_a_header_names_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_text("gpu,tpot_ms,gpu\nh100,17,h100\n")
    with pytest.raises(InputError) as raised:
        read_table(path)
    assert (raised.value.field, raised.value.value) == ("twice.csv header", "gpu")


def test_numbers() -> None:
    assert number(" 2.5 ", 1e-3) == 0.0025
    assert number("") is None
    assert number("x") != number("x")


def test_a_table_without_rows_and_one_without_commas_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("gpu,engine,model,scenario,prompt_tokens,output_tokens,tpot_mean_s\n")
    with pytest.raises(InputError, match="0 rows"):
        read_measurements(path)
    path.write_text("gpu;engine;model\n1;2;3\n")
    with pytest.raises(InputError, match="with commas between its columns"):
        read_measurements(path)


SILICON = "backend,model_path,system,isl,osl,gemm_quant_mode,concurrency,tp_size,silicon_ttft_ms,silicon_tpot_ms\n"
SILICON_ROW = "vllm,meta-llama/Llama-3.1-8B,h100_sxm,1024,128,bf16,4,1,40,8\n"
LOGS = "kv_cache_tokens,gpu_memory_utilization,max_model_len,version,model,gpu,tp,pp\n"


def without(column: str, header: str, row: str) -> str:
    names, cells = header.strip().split(","), row.strip().split(",")
    kept = [place for place, name in enumerate(names) if name != column]
    return "\n".join(",".join(line[place] for place in kept) for line in (names, cells)) + "\n"


@pytest.mark.parametrize("column", ["backend", "model_path", "system", "isl", "osl"])
def test_a_silicon_table_names_the_one_column_that_it_lacks(tmp_path: Path, column: str) -> None:
    with pytest.raises(InputError, match=f"lacks {column}\\."):
        read_measurements(table(tmp_path, without(column, SILICON, SILICON_ROW)))


@pytest.mark.parametrize("column", ["software", "scenario", "prompt_len", "output_len", "gpu", "model"])
def test_a_common_table_names_the_one_column_that_it_lacks(tmp_path: Path, column: str) -> None:
    row = "x,vLLM,Llama-3.1-8B,H100,1,1,rate,512,256,fixed,2.5,8.5,paced\n"
    with pytest.raises(InputError, match=f"lacks {column}\\."):
        read_measurements(table(tmp_path, without(column, COMMON, row)))


def test_a_table_without_one_latency_or_without_notes_is_read(tmp_path: Path) -> None:
    row = only(tmp_path, without("silicon_tpot_ms", SILICON, SILICON_ROW))
    assert (row.ttft_s, row.tpot_s) == (pytest.approx(0.04), None)
    row = only(tmp_path, without("silicon_ttft_ms", SILICON, SILICON_ROW))
    assert (row.ttft_s, row.tpot_s) == (None, pytest.approx(0.008))
    noted = "x,vLLM,Llama-3.1-8B,H100,1,1,rate,512,256,fixed,2.5,8.5,paced\n"
    assert only(tmp_path, without("notes", COMMON, noted)).notes == ""


@pytest.mark.parametrize("column", LOGS.strip().split(",")[:-1])
def test_start_up_logs_name_the_one_column_that_they_lack(tmp_path: Path, column: str) -> None:
    row = "476016,0.95,8192,0.19.0,Llama-3.1-8B,H100,1,1\n"
    with pytest.raises(InputError, match=f"lacks {column}\\."):
        is_kv_capacity(table(tmp_path, without(column, LOGS, row)))


def test_the_schemas_own_tables_are_not_taken_for_others(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lacks scenario"):
        read_measurements(table(tmp_path, without("scenario", OWN, ROW)))
