"""The catalogue's GPU behind the name that a driver prints, as collectors record it (nvidia-smi, rocm-smi, PyTorch)."""

import re

from planner.hardware.catalogue import survey_gpus
from planner.hardware.gpu import GpuProfile

_NOISE = re.compile(r"\b(?:nvidia|geforce|amd|instinct|tesla|corporation|graphics device)\b|[^a-z0-9]+")
_DEVICES: tuple[tuple[str, str], ...] = (
    (r"a100sxm\d?80gb", "a100-80g-sxm"),
    (r"a100sxm\d?40gb", "a100-40g-sxm"),
    (r"a100(?:80gb)?pcie(?:80gb)?", "a100-80g-pcie"),
    (r"a100pcie40gb", "a100-40g-pcie"),
    (r"h100nvl", "h100-94g-nvl"),
    (r"h100(?:80gb)?pcie(?:80gb)?", "h100-80g-pcie"),
    (r"h100(?:sxm\d?)?(?:80gb)?(?:hbm3)?", "h100-80g-sxm"),
    (r"h200nvl", "h200-141g-nvl"),
    (r"h200(?:sxm\d?)?(?:141gb)?(?:hbm3e)?", "h200-141g-sxm"),
    (r"h800(?:sxm\d?)?(?:80gb)?(?:hbm3)?", "h800-80g-sxm"),
    (r"h20(?:96gb)?(?:hbm3)?", "h20-96g"),
    (r"gh200(?:480gb|96g|96gb)(?:hbm3)?", "gh200-96g"),
    (r"gh200(?:144g|144gb)(?:hbm3e)?", "gh200-144g"),
    (r"b200(?:sxm\d?)?(?:ac)?", "b200-sxm"),
    (r"b300(?:sxm\d?)?(?:ac)?", "b300-sxm"),
    (r"gb10", "gb10-dgx-spark"),
    (r"rtxpro6000blackwellserveredition", "rtx-pro-6000-bw-server"),
    (r"rtxpro6000blackwellworkstationedition", "rtx-pro-6000-bw-ws"),
    (r"rtx6000adageneration", "rtx-6000-ada"),
    (r"v100sxm\d?16gb", "v100-16g-sxm"),
    (r"v100sxm\d?32gb", "v100-32g-sxm"),
    (r"v100pcie16gb", "v100-16g-pcie"),
)
_LONGEST = 200


def gpu_of_device(name: str) -> GpuProfile | None:
    """Return the GPU that a driver's device name stands for; None where it is none of the catalogue's.

    >>> [gpu.id for name in ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S") if (gpu := gpu_of_device(name))]
    ['h100-80g-sxm', 'a100-80g-sxm', 'l40s']
    >>> gpu_of_device("AMD EPYC") is None
    True
    """
    plain = _NOISE.sub("", name[:_LONGEST].lower())
    by_plain = {_NOISE.sub("", gpu.id): gpu for gpu in survey_gpus().profiles}
    wanted = next((gpu_id for pattern, gpu_id in _DEVICES if re.fullmatch(pattern, plain)), None)
    return by_plain.get(plain if wanted is None else _NOISE.sub("", wanted))
