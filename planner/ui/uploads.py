"""Files that a user brings: read within bounds, kept in the user's own folder. Nothing is overwritten."""

from pathlib import Path

from planner.errors import InputError
from planner.hardware import GpuProfile, gpu_from_toml, survey_gpus
from planner.models import ModelSpec, list_models, model_from_config
from planner.paths import user_home
from planner.units import MIB

MAX_CONFIG_MIB = 2
MAX_TOML_MIB = 1
MAX_TRACE_MIB = 200


def checked_bytes(data: bytes, name: str, most_mib: int) -> bytes:
    """Return a file's bytes; InputError when there are none or more than `most_mib` MiB."""
    if not data:
        raise InputError(name, "0 bytes", "must not be empty", "Choose the file again")
    if len(data) > most_mib * MIB:
        raise InputError(name, f"{len(data):,} bytes", f"must be at most {most_mib} MiB", "Give the configuration, not the weights")
    return data


def read_model(data: bytes, name: str) -> ModelSpec:
    """Return the model of a Hugging Face config.json; name : what the user calls it."""
    return model_from_config(checked_bytes(data, "config.json", MAX_CONFIG_MIB), name)


def read_gpu(data: bytes, file_name: str) -> GpuProfile:
    """Return the GPU of a TOML profile."""
    try:
        text = checked_bytes(data, "GPU profile", MAX_TOML_MIB).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("GPU profile", file_name, "must be UTF-8 text", "Save the file as UTF-8") from error
    return gpu_from_toml(text, file_name)


def save_model(data: bytes, model: ModelSpec) -> Path:
    """Keep a config.json as PLANNER_HOME/models/<id>.json and return its path."""
    if any(model.id == known.id for known in list_models()):
        raise InputError("name", model.name, "is already a model of the catalogue", "Give it another name")
    return _write("models", f"{model.id}.json", data)


def is_kept(data: bytes, folder: str, name: str) -> bool:
    """Whether the user's folder holds this very file; folder, name : below PLANNER_HOME."""
    home = user_home()
    if home is None:
        return False
    path = home / folder / name
    return path.is_file() and path.read_bytes() == data


def save_gpu(data: bytes, gpu: GpuProfile) -> Path:
    """Keep a profile as PLANNER_HOME/hardware_profiles/<id>.toml and return its path."""
    if any(gpu.id == known.id for known in survey_gpus().profiles):
        raise InputError("id", gpu.id, "is already a GPU of the catalogue", "Change the id in the file")
    return _write("hardware_profiles", f"{gpu.id}.toml", data)


def _write(folder: str, name: str, data: bytes) -> Path:
    home = user_home()
    if home is None:
        raise InputError(
            "PLANNER_HOME", None, "must name a folder of yours", "Set the environment variable and start the app again"
        )
    path = home / folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(data)
    except OSError as error:
        if path.exists():
            raise InputError("name", name, f"is already in {folder}", "Give it another name") from error
        raise InputError("PLANNER_HOME", str(path.parent), f"can't be written ({error.strerror})", "Name another folder") from error
    return path
