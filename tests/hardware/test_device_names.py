"""Names that drivers print lead to the catalogue's GPU, and nothing else does."""

import pytest

from planner.hardware import list_gpus
from planner.hardware.device_names import gpu_of_device

# Names as nvidia-smi and rocm-smi print them.
DEVICES = {
    "NVIDIA H100 80GB HBM3": "h100-80g-sxm",
    "NVIDIA H100 PCIe": "h100-80g-pcie",
    "NVIDIA H100 NVL": "h100-94g-nvl",
    "NVIDIA A100-SXM4-80GB": "a100-80g-sxm",
    "NVIDIA A100-SXM4-40GB": "a100-40g-sxm",
    "NVIDIA A100 80GB PCIe": "a100-80g-pcie",
    "NVIDIA A100-PCIE-40GB": "a100-40g-pcie",
    "NVIDIA H200": "h200-141g-sxm",
    "NVIDIA H200 NVL": "h200-141g-nvl",
    "NVIDIA H20": "h20-96g",
    "NVIDIA B200": "b200-sxm",
    "NVIDIA B300 SXM6 AC": "b300-sxm",
    "NVIDIA GB200": "gb200",
    "NVIDIA GH200 480GB": "gh200-96g",
    "NVIDIA GH200 144G HBM3e": "gh200-144g",
    "NVIDIA L40S": "l40s",
    "NVIDIA L4": "l4",
    "NVIDIA A10G": "a10g",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000-bw-server",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-32GB": "v100-32g-sxm",
    "AMD Instinct MI300X": "mi300x",
}


@pytest.mark.parametrize(("device", "gpu_id"), DEVICES.items())
def test_a_driver_s_name_leads_to_its_gpu(device: str, gpu_id: str) -> None:
    gpu = gpu_of_device(device)
    assert gpu is not None
    assert gpu.id == gpu_id


def test_an_id_of_the_catalogue_leads_to_itself() -> None:
    for gpu in list_gpus():
        found = gpu_of_device(gpu.id)
        assert found is not None, gpu.id
        assert found.id == gpu.id


@pytest.mark.parametrize(
    "name", ["", "AMD EPYC", "2 cores of a shared x86-64 machine", "H100" * 1000, "<b>H100</b>", "\x00", "H100 or A100"]
)
def test_any_other_name_leads_nowhere(name: str) -> None:
    assert gpu_of_device(name) is None
