"""Memory of one GPU under an engine: weights, activations, CUDA graphs, libraries and the KV blocks that are left."""

from planner.memory.budget import MemoryBudget, MemoryPart, Shortfall, memory_budget, reported_kv_tokens
from planner.memory.held import held_weights_bytes
from planner.memory.kv_layout import CacheGroup, KvLayout, kv_layout
from planner.memory.logs import EngineLog, parse_engine_log
from planner.memory.remedies import Remedy, what_would_help
from planner.memory.report import MemoryReport, RecordedCapacity, memory_report, recorded_capacities
from planner.memory.visible import visible_memory_bytes, visible_memory_source

__all__ = [
    "CacheGroup",
    "EngineLog",
    "KvLayout",
    "MemoryBudget",
    "MemoryPart",
    "MemoryReport",
    "RecordedCapacity",
    "Remedy",
    "Shortfall",
    "held_weights_bytes",
    "kv_layout",
    "memory_budget",
    "memory_report",
    "parse_engine_log",
    "recorded_capacities",
    "reported_kv_tokens",
    "visible_memory_bytes",
    "visible_memory_source",
    "what_would_help",
]
