"""Settings that a benchmark's published launch scripts state and its tables leave out, as data with their sources."""

import fnmatch
from functools import lru_cache
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from planner.calibration.measurements import FrontEnd, Measurement
from planner.calibration.records import version_key
from planner.paths import PROFILES_DIR

RECIPES_FILE = PROFILES_DIR / "evidence" / "accuracy" / "recipes.json"
MACHINES_FILE = PROFILES_DIR / "evidence" / "accuracy" / "machines.json"


class Recipe(BaseModel):
    """Settings of some rows of one source; the first recipe whose patterns fit a row holds. None leaves the engine's default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    source: str = Field(default="*", description="pattern of the row's source")
    engine: str = "*"
    model: str = "*"
    gpu: str = "*"
    weight_dtype: str = "*"
    since: str = Field(default="", description="first date, YYYY-MM-DD; rows without a date fit none")
    kv_dtype: Literal["bf16", "fp8"] | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    max_num_seqs: int | None = Field(default=None, ge=1)
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    tokens_beyond_prompt: int | None = Field(default=None, ge=0, description="budget of a step less prompt and clients [token]")
    mixed_batches: bool | None = None
    wait_steps: int = Field(default=0, ge=0, le=1000, description="steps for which prompts are held back to batch them")
    prompt_tokens: float | None = Field(default=None, description="holds for rows of this prompt alone [token]")
    output_tokens: float | None = Field(default=None, description="the same of the output [token]")
    version_below: str | None = Field(default=None, description="holds for older releases of the engine alone")
    scenario: str = Field(default="*", description="pattern of the row's scenario")
    tp_below: int | None = Field(default=None, ge=1, description="holds for smaller tensor-parallel sizes alone")
    kv_cache_tokens: int | None = Field(default=None, ge=1, description="as the engine logged it [token]")
    async_scheduling: bool | None = None
    expert_parallel: bool = False
    copies_attention: bool = Field(default=False, description="each GPU has a copy of the attention layers and its own requests")
    all_reduce_in_product: bool = Field(
        default=False, description="one kernel multiplies and all-reduces, so that the transfer hides"
    )
    cuda_graphs: bool | None = Field(default=None, description="whether decode steps are replayed from CUDA graphs")
    requests: int | None = Field(default=None, ge=1, le=10**6, description="requests of a run whose row states none [request]")
    sending_s: float | None = Field(default=None, gt=0, le=86400, description="requests are sent for so long at least [s]")
    front_end: FrontEnd | None = None
    reference: str = Field(default="the engine's defaults", description="where the settings were read")

    def fits(self, measured: Measurement, engine: str, model_id: str, gpu_id: str) -> bool:
        """Say whether the recipe holds for a row."""
        pairs = (
            (measured.source, self.source),
            (engine, self.engine),
            (model_id, self.model),
            (gpu_id, self.gpu),
            (measured.weight_dtype, self.weight_dtype),
            (measured.scenario, self.scenario),
        )
        if self.prompt_tokens not in {None, measured.prompt_tokens} or self.output_tokens not in {None, measured.output_tokens}:
            return False
        if self.version_below is not None and version_key(measured.engine_version) >= version_key(self.version_below):
            return False
        if self.tp_below is not None and (measured.tp or 1) >= self.tp_below:
            return False
        return measured.date >= self.since and all(fnmatch.fnmatchcase(text, pattern) for text, pattern in pairs)


DEFAULTS = Recipe()


@lru_cache(maxsize=1)
def recipes() -> tuple[Recipe, ...]:
    """Return the shipped recipes in order."""
    return TypeAdapter(tuple[Recipe, ...]).validate_json(RECIPES_FILE.read_bytes())


def recipe_for(measured: Measurement, engine: str, model_id: str, gpu_id: str) -> Recipe:
    """Return the first recipe that fits a row, or the engine's defaults."""
    return next((recipe for recipe in recipes() if recipe.fits(measured, engine, model_id, gpu_id)), DEFAULTS)


class Machine(BaseModel):
    """What is known of the hosts behind some rows of one source, beyond their GPUs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(description="pattern of the row's source")
    gpu: str = Field(description="pattern of the GPU's id")
    cards_copy_directly: bool = Field(description="all-reduces over PCIe run at the rate of two cards; see at_pair_rate")
    reference: str = Field(min_length=1, max_length=1000, description="where that shows")


@lru_cache(maxsize=1)
def machines() -> tuple[Machine, ...]:
    """Return the known hosts."""
    return TypeAdapter(tuple[Machine, ...]).validate_json(MACHINES_FILE.read_bytes())


def cards_copy_directly(measured: Measurement, gpu_id: str) -> bool:
    """Say whether a row's host is known to copy straight from card to card over PCIe."""
    fitting = (
        one for one in machines() if fnmatch.fnmatchcase(measured.source, one.source) and fnmatch.fnmatchcase(gpu_id, one.gpu)
    )
    return any(one.cards_copy_directly for one in fitting)
