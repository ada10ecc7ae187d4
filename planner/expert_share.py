"""What routed experts reach of the peak when tensor parallelism splits them into narrow products."""

from planner.calibration.families import whole_experts
from planner.deployment import Deployment

EXPERT_WIDTH = 768.0
"""Hidden width of an expert on one GPU for which records state the experts' efficiency (Qwen3-30B-A3B on one GPU)."""

NARROW_HALF_WIDTH_16 = 750.0
"""Width at which products of experts stored in 16 bit that are narrower than EXPERT_WIDTH reach half of their best share.

A100's curve (planner.calibration.families.whole_experts): nothing this narrow was measured in 16 bit on Hopper.
"""

HALF_WIDTH = 2500.0
"""Width at which the products of experts stored in eight or four bits reach half of their best share.

Prefill of 8,192 tokens in closed-loop runs (InferenceX by aiconfigurator's silicon table, Apache-2.0; MiniMax-M2.5, Kimi-K2.5,
DeepSeek-R1, gpt-oss-120b on H200, B200 and B300) asks for 0.35, 0.18, 0.125, 0.11 and 0.07 of the linear layers' share at 1,536,
768, 384, 256 and 192 values; w / (w + 2500) gives 0.38, 0.24, 0.13, 0.09 and 0.07.
"""

PACKED_SHARE = 0.57
"""Share of the 16-bit figure that is left where experts stored in few bits are unpacked to 16 bit in the kernel: 0.2 of 0.35.

Kimi-K2.5 in INT4 on B200 (the same source) asks for no more than experts computed in eight bits.
"""

PRECISION_DOUBT = (
    "Experts stored in 16 bits and in fewer are rated by different measurements. By these, prefill on H100 takes 1.5 to 2.4 times "
    "as long with FP8 experts as with 16-bit ones where they are narrow (768 values or fewer on a GPU): a gap between the two "
    "sources, not a finding. Measure both before you choose this model's precision by cost."
)
"""What a plan says of a mixture of experts. With H100's record, FP8 experts reach 0.58 of the 16-bit ones' rate at 768 values, 0.41
at 96 and 1.7 at Mixtral's 14,336, though the data sheet doubles it."""

_STORED_WHOLE_BITS = 12


def expert_share(efficiency: float, deployment: Deployment) -> float:
    """Return the share of the peak that routed experts reach with the width that one GPU holds of each [1].

    efficiency : share at EXPERT_WIDTH values, as records hold it for the dtype of the products [1]

    The share goes as w / (w + half width): splitting narrow experts further hardly shortens their products. Expert parallelism
    keeps them whole. Never above 1.
    """
    layout, quantization = deployment.parallelism, deployment.quantization
    widths = [group.intermediate for group in deployment.model.groups if group.kind == "moe" and group.intermediate]
    if not widths:
        return efficiency
    width = min(widths) / (1 if layout.ep > 1 else layout.tp)
    whole = quantization.weight_bits >= _STORED_WHOLE_BITS
    whole_half = whole_experts(deployment.gpu).half_width if width > EXPERT_WIDTH else NARROW_HALF_WIDTH_16
    half = whole_half if whole else HALF_WIDTH
    unpacked = not whole and quantization.compute_dtype in {"bf16", "fp16"}
    share = efficiency * width / (width + half) * (EXPERT_WIDTH + half) / EXPERT_WIDTH
    return min(share * (PACKED_SHARE if unpacked else 1.0), 1.0)


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
