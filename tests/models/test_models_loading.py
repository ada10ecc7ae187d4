"""Finding models: the shipped ones, the user's own as one file, and everything that can be wrong with it."""

import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from planner.errors import InputError
from planner.models import LayerGroup, LayerShape, ModelSpec, list_models, load_model
from planner.models.spec import layer_numbers, layer_runs
from planner.paths import MODELS_DIR

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def test_one_config_json_adds_a_model(home: Path) -> None:
    before = len(list_models())
    (home / "my-model.json").write_text(json.dumps(CONFIG))
    spec = load_model("my-model")
    assert (spec.id, spec.name, spec.layers) == ("my-model", "my-model", 2)
    assert spec in list_models()
    assert len(list_models()) == before + 1


def test_a_folder_as_downloaded_adds_a_model(home: Path) -> None:
    (home / "My-Model").mkdir()
    (home / "My-Model" / "config.json").write_text(json.dumps(CONFIG))
    assert load_model("my-model").name == "My-Model"
    assert load_model("MY-MODEL").id == "my-model"


def test_one_catalogue_file_adds_a_model(home: Path) -> None:
    text = (MODELS_DIR / "qwen3-8b.json").read_text().replace('"id": "qwen3-8b"', '"id": "qwen3-8b-mine"')
    (home / "qwen3-8b-mine.json").write_text(text)
    assert load_model("qwen3-8b-mine").groups == load_model("qwen3-8b").groups


def test_the_users_file_wins_over_the_shipped_one(home: Path) -> None:
    assert load_model("qwen3-8b").layers == 36
    (home / "qwen3-8b.json").write_text(json.dumps(CONFIG))
    assert load_model("qwen3-8b").layers == 2
    assert len(list_models()) == 106


def test_a_changed_file_is_read_again(home: Path) -> None:
    path = home / "mine.json"
    path.write_text(json.dumps(CONFIG))
    assert load_model("mine").layers == 2
    path.write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    os.utime(path, ns=(1, 1))
    assert load_model("mine").layers == 3


def test_no_home_and_an_empty_home_are_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path / "nowhere"))
    assert len(list_models()) == 106


def test_repository_names_and_case() -> None:
    assert load_model("meta-llama/Llama-3.1-8B-Instruct").id == "llama-3.1-8b-instruct"
    assert load_model("LLAMA-3.1-8B-INSTRUCT").id == "llama-3.1-8b-instruct"


def test_an_unknown_id_names_its_neighbours() -> None:
    with pytest.raises(InputError, match=r"llama-3\.1-8b-instruct"):
        load_model("llama-3.1-8b")


@pytest.mark.parametrize(
    "model_id", ["", "../../../etc/passwd", "..", "/etc/passwd", "x" * 500, "<b>", "a\x00b", None, 17, "qwen3-8b.json"]
)
def test_ids_that_lead_nowhere(model_id: object) -> None:
    with pytest.raises(InputError) as caught:
        load_model(model_id)  # type: ignore[arg-type]
    assert caught.value.field == "model"


def test_a_huge_file_is_refused_unread(home: Path) -> None:
    with (home / "huge.json").open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(InputError, match="at most 2,097,152 bytes"):
        load_model("huge")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "must be JSON"),
        ("[]", "JSON object"),
        ('{"groups": []}', "mine.json"),
        ('{"model_type": "unheard-of"}', "has no reader"),
        ("", "must be JSON"),
    ],
)
def test_a_broken_file_is_named_and_the_others_still_load(home: Path, text: str, match: str) -> None:
    (home / "mine.json").write_text(text)
    with pytest.raises(InputError, match=match):
        load_model("mine")
    with pytest.raises(InputError, match=match):
        list_models()
    assert load_model("qwen3-8b").layers == 36


def test_a_file_whose_id_is_not_its_name_is_refused(home: Path) -> None:
    (home / "other.json").write_bytes((MODELS_DIR / "qwen3-8b.json").read_bytes())
    with pytest.raises(InputError, match="must be the file's name"):
        load_model("other")


def test_a_file_that_cannot_be_opened_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / "secret.json"
    path.write_text(json.dumps(CONFIG))

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        load_model("secret")


def test_wrong_figures_in_a_catalogue_file_are_refused(home: Path) -> None:
    good = json.loads((MODELS_DIR / "qwen3-8b.json").read_text()) | {"id": "mine"}
    for key, value in (
        ("layers", -1),
        ("hidden", 0),
        ("vocab", "many"),
        ("total", 1),
        ("head_params", 10**20),
        ("schema_version", 2),
    ):
        (home / "mine.json").write_text(json.dumps({**good, key: value}))
        with pytest.raises(InputError, match=key):
            load_model("mine")
    (home / "mine.json").write_text(json.dumps({**good, "layers": 10}))
    with pytest.raises(InputError, match="beyond the model's 10"):
        load_model("mine")


def test_a_spec_is_frozen_hashable_and_comes_back_from_json() -> None:
    spec = load_model("gemma-3-27b-it")
    assert ModelSpec.model_validate_json(spec.model_dump_json()) == spec
    assert hash(spec) == hash(load_model("gemma-3-27b-it"))
    with pytest.raises(ValidationError):
        spec.layers = 3  # type: ignore[misc]


def test_layer_numbers_are_written_as_runs() -> None:
    for numbers in ((0,), (0, 1, 2), (1, 3, 5), (*tuple(range(5)), 7, 8, 11)):
        assert layer_numbers(layer_runs(numbers)) == numbers


@pytest.mark.parametrize("at", ["", "a", "0-", "0-99999999", "-1", "2-1", "1000", "0,0", "3,1"])
def test_bad_layer_numbers_are_refused(at: str) -> None:
    with pytest.raises(ValidationError):
        LayerGroup(at=at, kind="dense_mlp", params_per_layer=1, active_params_per_layer=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"vector_params": 11},
        {"active_params_per_layer": 11},
        {"kind": "full"},
        {"kind": "moe"},
        {"kind": "moe", "experts": 2, "top_k": 3},
        {"kind": "sliding", "heads": 1, "kv_heads": 1, "qk_head_dim": 1, "v_head_dim": 1},
        {"kv_values_per_token": float("nan")},
        {"kv_values_per_token": -1},
        {"kv_values_per_token": 8, "rope_values_per_token": 9},
        {"kind": "banana"},
    ],
)
def test_shapes_that_contradict_themselves_are_refused(changes: dict[str, object]) -> None:
    plain = {"kind": "dense_mlp", "params_per_layer": 10, "active_params_per_layer": 10}
    assert LayerShape.model_validate(plain).sharded_params == 10
    with pytest.raises(ValidationError):
        LayerShape.model_validate({**plain, **changes})
