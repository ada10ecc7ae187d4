"""Files that a user brings: read within bounds, kept only in the user's folder, never over another."""

import json
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.hardware import load_gpu
from planner.models import load_model
from planner.ui import uploads
from planner.units import MIB
from tests.ui.users_files import GPU, LLAMA

CONFIG = json.dumps(LLAMA | {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True}).encode()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    return tmp_path


def test_a_config_becomes_a_model_that_plans_can_name(home: Path) -> None:
    model = uploads.read_model(CONFIG, "My Model 1B")
    path = uploads.save_model(CONFIG, model)
    assert path.is_relative_to(home)
    assert load_model(model.id).total_params == model.total_params


def test_a_profile_becomes_a_gpu_that_plans_can_name(home: Path) -> None:
    gpu = uploads.read_gpu(GPU, "capped.toml")
    assert uploads.save_gpu(GPU, gpu).is_relative_to(home)
    assert load_gpu("h100-capped").tdp_w == 500.0


def test_without_a_folder_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANNER_HOME", raising=False)
    with pytest.raises(InputError) as caught:
        uploads.save_model(CONFIG, uploads.read_model(CONFIG, "my-model"))
    assert caught.value.field == "PLANNER_HOME"


def test_a_file_is_never_written_over_another(home: Path) -> None:
    model = uploads.read_model(CONFIG, "my-model")
    kept = uploads.save_model(CONFIG, model)
    with pytest.raises(InputError):
        uploads.save_model(b"{}", model)
    assert kept.read_bytes() == CONFIG
    with pytest.raises(InputError):
        uploads.save_gpu(GPU, load_gpu("h100-80g-sxm"))


def test_a_shipped_model_is_not_shadowed_by_an_upload(home: Path) -> None:
    with pytest.raises(InputError) as caught:
        uploads.save_model(CONFIG, uploads.read_model(CONFIG, "Llama-3.1-8B-Instruct"))
    assert "already" in caught.value.bound


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..\\x", "<script>alert(1)</script>"])
def test_a_hostile_name_stays_inside_the_folder(home: Path, name: str) -> None:
    try:
        path = uploads.save_model(CONFIG, uploads.read_model(CONFIG, name))
    except InputError:
        return
    assert path.parent == home / "models"
    assert "<" not in path.name


@pytest.mark.parametrize("data", [b"", b"not json", b"[1, 2]", b"{}", b"\xff\xfe", b'{"model_type": "unheard-of"}', b"[" * 100_000])
def test_what_is_no_config_is_refused_with_a_remedy(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        uploads.read_model(data, "my-model")
    assert caught.value.remedy


def test_a_file_of_200_mib_is_refused_before_it_is_read() -> None:
    with pytest.raises(InputError) as caught:
        uploads.read_model(bytes(200 * int(MIB)), "my-model")
    assert "at most 2 MiB" in caught.value.bound


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\xfa", b"id = ", b"a = [" + b"[" * 5000, b'extends = "nothing"', b'id = "x"\nname = "<b>x</b>"']
)
def test_what_is_no_profile_is_refused_with_a_remedy(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        uploads.read_gpu(data, "gpu.toml")
    assert caught.value.remedy
