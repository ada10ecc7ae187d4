"""Accelerators, the nodes that hold them and their prices, each figure with its source.

>>> from planner.hardware import load_gpu
>>> load_gpu("h100-80g-sxm").peak_flops_per_s("bf16")
989400000000000.0
"""

from planner.hardware.catalogue import (
    Survey,
    gpu_from_toml,
    list_gpus,
    list_nodes,
    load_gpu,
    load_node,
    nodes_for,
    survey_gpus,
    survey_nodes,
)
from planner.hardware.checks import pcie_bytes_per_s
from planner.hardware.figures import Dtype, FigureSource, Topology
from planner.hardware.gpu import GpuProfile, HostLink, Interconnect, Pcie, figure_names
from planner.hardware.market import Market, load_market
from planner.hardware.node import Host, Node
from planner.hardware.prices import Price, list_prices, prices_for, prices_from_csv
from planner.hardware.schema import gpu_json_schema, node_json_schema

__all__ = [
    "Dtype",
    "FigureSource",
    "GpuProfile",
    "Host",
    "HostLink",
    "Interconnect",
    "Market",
    "Node",
    "Pcie",
    "Price",
    "Survey",
    "Topology",
    "figure_names",
    "gpu_from_toml",
    "gpu_json_schema",
    "list_gpus",
    "list_nodes",
    "list_prices",
    "load_gpu",
    "load_market",
    "load_node",
    "node_json_schema",
    "nodes_for",
    "pcie_bytes_per_s",
    "prices_for",
    "prices_from_csv",
    "survey_gpus",
    "survey_nodes",
]
