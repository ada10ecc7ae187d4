"""The memory of a step beside weights and KV cache: what the engine's profiling run finds at its peak.

vLLM runs the model once on max_num_batched_tokens dummy tokens without attention, then samples min(max_num_seqs, tokens) rows, and
keeps the peak of PyTorch's allocations free. Both peaks follow from the sizes of the tensors alive at that moment, read in the
releases' sources; nothing here is fitted except the CUDA graphs. Against 39 start-up logs of vLLM 0.19 on H100 the peaks of text
models agree to 0.01 GiB (the logs' rounding) where the sampler decides and to 0.02 GiB where the feed-forward layers do.
"""

from typing import NamedTuple

from planner.deployment import Deployment
from planner.engines import VllmFacts, graph_sizes, vllm_facts
from planner.hardware import GpuProfile
from planner.memory.held import feed_forward_projections
from planner.models import LayerGroup, ModelSpec
from planner.units import GIB, MIB

ModelRunnerVersion = int

_BLAS_WORKSPACE_BYTES = 32 * MIB
_OLD_BLAS_WORKSPACE_BYTES = 8.125 * MIB
_FLOAT32_BYTES = 4
_SORT_BYTES = 32
_RESIDUAL_COPIES = 4
_FIRST_TRITON_MINOR = 17
_FIRST_FLASHINFER_MINOR = 21
_NON_TORCH_GIB = {1: 0.25, 2: 2.09}
_NON_TORCH_MANY_GIB = 2.15
_GRAPH_BASE_GIB = 0.26
_GRAPH_LAYER_GIB = 0.0195
_GRAPH_SIZES_SEEN = 51


class ActivationParts(NamedTuple):
    """The pieces of the profiling peak on the GPU that has most of it [B].

    forward_bytes : feed-forward layers at the token budget
    sampler_bytes : logits of the sampled rows and the copies that sampling makes, with the hidden states still alive
    workspace_bytes : scratch memory of fused experts that stays allocated
    encoder_bytes : embeddings of images kept for one step, in models with a vision tower
    stage_bytes : hidden states received from the pipeline stage before
    """

    forward_bytes: float
    sampler_bytes: float
    workspace_bytes: float
    encoder_bytes: float
    stage_bytes: float

    @property
    def peak_bytes(self) -> float:
        """Peak of one profiling run [B]: the larger of forward pass and sampler, and what is alive during both."""
        return max(self.forward_bytes, self.sampler_bytes) + self.workspace_bytes + self.encoder_bytes + self.stage_bytes


def activation_parts(deployment: Deployment) -> ActivationParts:
    """Return the pieces of vLLM's profiling peak for a deployment, by its release."""
    model, layout, engine = deployment.model, deployment.parallelism, deployment.engine
    facts = vllm_facts(engine.version)
    element = deployment.activation_element_bytes
    tokens = engine.max_num_batched_tokens
    rows = min(engine.max_num_seqs, tokens)
    hidden_bytes = tokens * model.hidden * element
    workspace = moe_workspace_bytes(deployment, tokens)
    return ActivationParts(
        forward_bytes=forward_peak_bytes(deployment, tokens) + (0.0 if facts.moe_workspace_persists else workspace),
        sampler_bytes=hidden_bytes
        + 2 * rows * model.hidden * element
        + rows * model.vocab * sampler_bytes_per_logit(facts, model_runner(facts, deployment), element)
        + sampler_buffer_bytes(facts, deployment.gpu, rows, model.vocab)
        + blas_workspace_bytes(deployment.gpu),
        workspace_bytes=workspace if facts.moe_workspace_persists else 0.0,
        encoder_bytes=float(hidden_bytes) if model.vision_params else 0.0,
        stage_bytes=2.0 * hidden_bytes if layout.pp > 1 else 0.0,
    )


def sampler_bytes_per_logit(facts: VllmFacts, runner: ModelRunnerVersion, element_bytes: int) -> int:
    """Return what sampling holds for one logit at its peak [B].

    runner : 1 or 2, version of the model runner
    element_bytes : bytes of a logit as the head computes it [B]

    Version 1: the logits, a float32 copy, their softmax and the random numbers divided into it (three float32 tensors; float32
    logits are copied once more because they are a slice). Up to 0.16 top-p sorts instead: values 4, indices 8, and the sort's own
    indices 8 and scratch 12 beside logits and copy; vllm-project/vllm pull request 32558 measured 40 B for the same with a copy of
    its input. Version 2 profiles the bare logits up to 0.32, and sampling with penalties from 0.33 on.
    """
    if runner == 2 and not facts.v2_profiles_processing:
        return element_bytes
    if facts.sampler_profile == "sorted logits":
        return element_bytes + _FLOAT32_BYTES + _SORT_BYTES
    return element_bytes + 3 * _FLOAT32_BYTES


def sampler_buffer_bytes(facts: VllmFacts, gpu: GpuProfile, rows: int, vocab: int) -> float:
    """Return the scratch buffer of the Triton top-k and top-p kernel [B]: one float32 row of logits for each multiprocessor.

    Releases 0.17 to 0.20 use that kernel on NVIDIA GPUs; later ones call FlashInfer, earlier ones sort.
    """
    if gpu.multiprocessors is None or not _FIRST_TRITON_MINOR <= facts.minor < _FIRST_FLASHINFER_MINOR:
        return 0.0
    return float(_FLOAT32_BYTES * min(gpu.multiprocessors, rows) * vocab)


def forward_peak_bytes(deployment: Deployment, tokens: int) -> float:
    """Return the peak of the feed-forward layers at `tokens` tokens [B].

    Alive at once: the attention output, the residual stream before and after, the normed input (4 · hidden), gate and up
    projections and their product (3 · intermediate / tp; 2 without a gate), and the quantised copy of that product.
    """
    model, layout = deployment.model, deployment.parallelism
    element = deployment.activation_element_bytes
    quantised = {"fp8": 1.0, "int8": 1.0, "fp4": 0.5}.get(deployment.quantization.compute_dtype, 0.0)
    widest = max((_feed_forward_bytes(model, group, element, quantised) for group in model.groups), default=0.0)
    return tokens * (_RESIDUAL_COPIES * model.hidden * element + widest / layout.tp) + blas_workspace_bytes(deployment.gpu)


def moe_workspace_bytes(deployment: Deployment, tokens: int) -> float:
    """Return the scratch memory of the fused experts' kernels at `tokens` tokens [B].

    Two buffers of top_k rows a token: max(2 · intermediate, hidden) and max(intermediate, hidden) wide, the intermediate size
    divided by tp unless experts are whole on one GPU.
    """
    layout = deployment.parallelism
    widest = 0
    for group in deployment.model.groups:
        if group.kind == "moe" and group.intermediate is not None and group.top_k is not None:
            width = group.intermediate // (layout.tp if layout.ep == 1 else 1)
            hidden = deployment.model.hidden
            widest = max(widest, group.top_k * (max(2 * width, hidden) + max(width, hidden)))
    return float(tokens * widest * deployment.activation_element_bytes)


def sequence_slot_bytes(deployment: Deployment) -> float:
    """Return what the second model runner keeps for each of max_num_seqs slots [B]: token counts for penalties, 4.125 B a word."""
    facts = vllm_facts(deployment.engine.version)
    if model_runner(facts, deployment) == 1:
        return 0.0
    return deployment.engine.max_num_seqs * deployment.model.vocab * (4 + 1 / 8)


def model_runner(facts: VllmFacts, deployment: Deployment) -> ModelRunnerVersion:
    """Return which version of vLLM's model runner a deployment gets by default.

    Source: VllmConfig.use_v2_model_runner of the releases; between 0.22 and 0.28 it depends on the architecture.
    """
    model, family = deployment.model, deployment.model.family
    dense_16_bit = not model.is_moe and deployment.quantization.weight_bits >= 16
    if facts.model_runner == "v2":
        return 2
    if facts.model_runner == "v2 when dense":
        return 1 if model.is_moe and family not in {"deepseek_v2", "qwen2_moe", "granitemoe"} else 2
    if facts.model_runner == "v2 by architecture":
        families = {22: {"qwen3"}, 23: {"qwen3", "llama", "mistral"}}.get(facts.minor)
        if families is None:
            return 2 if family in {"qwen3", "llama", "mistral", "deepseek_v2", "qwen2_moe", "granitemoe"} else 1
        return 2 if family in families and dense_16_bit else 1
    return 1


def graphs_bytes(deployment: Deployment) -> float:
    """Return the memory of captured CUDA graphs [B]; 0 without graphs.

    0.26 GiB + 0.0195 GiB for each layer of the stage and all 51 sizes up to 512 tokens. Fitted to vLLM 0.19's own estimate on every
    other of 26 configurations on H100; on the rest the median error is 0.15 GiB, the largest 0.8 (estimates of one model differ by
    as much between TP sizes). Later releases were seen to estimate up to three times what capture took.
    """
    largest = deployment.engine.largest_graph_tokens
    if not largest:
        return 0.0
    layers = -(-deployment.model.layers // deployment.parallelism.pp)
    share = len(graph_sizes(largest)) / _GRAPH_SIZES_SEEN
    return (_GRAPH_BASE_GIB + _GRAPH_LAYER_GIB * layers * share) * GIB


def non_torch_bytes(deployment: Deployment) -> float:
    """Return what libraries take outside PyTorch after start-up [B]: 0.25 GiB on one GPU, 2.1 among several.

    Medians of 39 start-up logs of vLLM 0.19 on H100: 0.24–0.27 at tp 1, 2.07–2.11 at tp 2, 2.13–2.21 at tp 4 (NCCL, all-reduce
    buffers), 0.07 for a pipeline stage without tensor parallelism. Assumed to hold elsewhere.
    """
    layout = deployment.parallelism
    if layout.tp == 1:
        return (0.07 if layout.pp > 1 else _NON_TORCH_GIB[1]) * GIB
    return _NON_TORCH_GIB.get(layout.tp, _NON_TORCH_MANY_GIB) * GIB


def blas_workspace_bytes(gpu: GpuProfile) -> float:
    """Return cuBLAS's workspace in PyTorch [B]: 32 MiB from compute capability 9 on, 8 MiB before."""
    major = (gpu.compute_capability or "").partition(".")[0]
    return _BLAS_WORKSPACE_BYTES if major.isdigit() and int(major) >= 9 else _OLD_BLAS_WORKSPACE_BYTES


def _feed_forward_bytes(model: ModelSpec, group: LayerGroup, element_bytes: int, quantised_bytes: float) -> float:
    """Hidden feed-forward values of one token in a dense layer, or in the shared experts of a routed one [B]."""
    if group.kind == "dense_mlp" and group.intermediate:
        return group.intermediate * (feed_forward_projections(model, group) * element_bytes + quantised_bytes)
    shared_width = group.shared_params / (3 * model.hidden)
    return shared_width * (3 * element_bytes + quantised_bytes)
