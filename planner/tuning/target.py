"""What a measurement was made on, as a user states it: files of benchmarks and logs say little of it."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from planner.calibration.fit.__main__ import start_record
from planner.calibration.fit.parameters import kv_read_prior
from planner.calibration.records import CalibrationRecord, record_for
from planner.deployment import Deployment, Parallelism
from planner.engines import ENGINE_VERSIONS, EngineName, engine_defaults
from planner.errors import InputError
from planner.hardware import GpuProfile, load_gpu
from planner.memory import MemoryBudget, memory_budget
from planner.models import QUANTIZATIONS, load_model
from planner.step_coefficients import compute_dtype_on

_HOST = "host"  # a processor that is no accelerator: attention there is bound by its kernel, not by memory
Count = Annotated[int, Field(ge=1, le=10**9)]


class Target(BaseModel):
    """GPU, model, layout and engine settings; None leaves the engine's default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    gpu_id: str = Field(max_length=64)
    model_id: str = Field(max_length=128)
    quantization: str = Field(default="bf16", max_length=64)
    kv_dtype: str | None = Field(default=None, max_length=16)
    tp: Annotated[int, Field(ge=1, le=1024)] = 1
    engine: EngineName = "vllm"
    engine_version: Annotated[str, Field(max_length=32, pattern=r"^[A-Za-z0-9.+-]+$")] | None = Field(
        default=None, description="release; None: the newest that the planner knows"
    )
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    max_model_len: Count | None = None
    kv_cache_tokens: Count | None = Field(default=None, description="GPU KV cache size that the engine logged [token]")
    async_scheduling: bool | None = None
    cuda_graphs: bool | None = None
    replicas: Annotated[int, Field(ge=1, le=10_000)] = Field(default=1, description="engines that share the load of a benchmark")

    @property
    def version(self) -> str:
        """The engine's release."""
        return self.engine_version or ENGINE_VERSIONS[self.engine][-1]

    def gpu(self) -> GpuProfile:
        """Return the accelerator; InputError for an unknown id."""
        return load_gpu(self.gpu_id)

    def deployment(self) -> Deployment:
        """Return what was measured; InputError for an unknown id, or a layout that the model doesn't allow."""
        gpu, known = self.gpu(), ENGINE_VERSIONS[self.engine]
        quantization = QUANTIZATIONS.get(self.quantization)
        if quantization is None:
            raise InputError("quantization", self.quantization, f"must be one of {', '.join(QUANTIZATIONS)}", "Choose one of these")
        settings = engine_defaults(self.engine, self.version if self.version in known else known[-1], gpu, self.tp)
        given = {
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_model_len": self.max_model_len,
            "async_scheduling": self.async_scheduling,
            "cuda_graphs": self.cuda_graphs,
            "enable_prefix_caching": False,
        }
        return Deployment(
            gpu=gpu,
            model=load_model(self.model_id),
            quantization=quantization,
            kv_dtype=self.kv_dtype or quantization.kv_dtype,
            parallelism=Parallelism(tp=self.tp),
            engine=settings.replace(**{name: value for name, value in given.items() if value is not None}),
        )

    def memory(self, deployment: Deployment) -> MemoryBudget:
        """Return the engine's memory; InputError when the model doesn't fit."""
        budget = memory_budget(deployment, self.kv_cache_tokens)
        if not budget.fits:
            remedy = "Check GPU, quantization and tensor parallelism, or give the engine's logged KV cache size"
            raise InputError("model", self.model_id, f"does not fit {self.tp} x {self.gpu_id}", remedy)
        return budget

    def serving_prior(self, deployment: Deployment) -> CalibrationRecord:
        """Return what a fit to a benchmark starts from: the record that a plan would use, under the id of the new one."""
        dtype = compute_dtype_on(deployment.gpu, deployment.quantization, self.engine)
        return record_for(deployment.gpu, self.engine, self.version, dtype).model_copy(update=self._identity())

    def step_prior(self) -> CalibrationRecord:
        """Return what a fit to steps starts from: what is known of the GPU's family."""
        graphs = True if self.cuda_graphs is None else self.cuda_graphs
        update = {"cuda_graphs": graphs, **self._identity()}
        if self.gpu().form == _HOST:
            update["kv_read_efficiency"] = kv_read_prior()
        return start_record(self.gpu_id, self.engine, self.version).model_copy(update=update)

    def _identity(self) -> dict[str, Any]:
        return {"id": f"{self.gpu_id}/{self.engine}-{self.version}", "engine_version": self.version}
