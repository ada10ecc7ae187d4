"""What routed experts reach of the peak when tensor parallelism splits them into narrow products."""

from planner.deployment import Deployment

EXPERT_WIDTH = 768.0
"""Hidden width of an expert on one GPU for which records state the experts' efficiency (Qwen3-30B-A3B on one GPU)."""

HALF_WIDTH = 2500.0
"""Width at which an expert's products reach half of their best share.

Prefill of 8,192 tokens in closed-loop runs (InferenceX by aiconfigurator's silicon table, Apache-2.0; MiniMax-M2.5, Kimi-K2.5,
DeepSeek-R1, gpt-oss-120b on H200, B200 and B300) asks for 0.35, 0.18, 0.125, 0.11 and 0.07 of the linear layers' share at 1,536,
768, 384, 256 and 192 values; w / (w + 2500) gives 0.38, 0.24, 0.13, 0.09 and 0.07.
"""


def expert_share(efficiency: float, deployment: Deployment) -> float:
    """Return the share of the peak that routed experts reach with the width that one GPU holds of each [1].

    efficiency : share at EXPERT_WIDTH values, as records hold it [1]

    The share goes as w / (w + HALF_WIDTH): splitting narrow experts further hardly shortens their products. Expert parallelism
    keeps them whole. Never above 1.
    """
    layout = deployment.parallelism
    widths = [group.intermediate for group in deployment.model.groups if group.kind == "moe" and group.intermediate]
    if not widths:
        return efficiency
    width = min(widths) / (1 if layout.ep > 1 else layout.tp)
    return min(efficiency * width / (width + HALF_WIDTH) * (EXPERT_WIDTH + HALF_WIDTH) / EXPERT_WIDTH, 1.0)


FUSED_SHARE = 0.25
"""Share of the routing constant that is left where routing, both products and the reduction run as one kernel.

Decode of gpt-oss-120b on B200 (TensorRT-LLM 1.2, 4 requests, tensor parallelism 8) takes 2.3 ms a step, 64 µs for each of 36 layers
in all (InferenceX by aiconfigurator's silicon table, Apache-2.0); the constant of separate kernels on H100 alone is 40 µs.
"""

_FUSED_WEIGHTS = ("nvfp4", "mxfp4")


def expert_layer_share(deployment: Deployment) -> float:
    """Return the share of a record's routing constant that a deployment's experts cost [1].

    A quarter for FP4 experts on data-centre Blackwell (compute capability 10), where engines choose a fused kernel; else 1.
    """
    blackwell = (deployment.gpu.compute_capability or "").startswith("10.")
    return FUSED_SHARE if blackwell and deployment.quantization.id.startswith(_FUSED_WEIGHTS) else 1.0
