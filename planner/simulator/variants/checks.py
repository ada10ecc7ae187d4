"""What the schedulers of other engines ask of an engine."""

from planner.errors import InputError
from planner.simulator.cluster.spec import EngineSpec
from planner.simulator.policies import Discipline


def check_engine(engine: EngineSpec, unit: str, remedy: str) -> None:
    """Raise InputError for a discipline, which these schedulers lack, or a token budget below one unit of the KV cache.

    unit, remedy : what the engine calls a KV block, and what to change, in its own words
    """
    if engine.discipline != Discipline():
        raise InputError("discipline", engine.discipline.policy, "must be the default: first come, first served", "Leave it unset")
    budget, block = engine.limits.max_num_batched_tokens, engine.limits.block_size
    if budget < block:
        raise InputError("engine.max_num_batched_tokens", budget, f"must hold at least one {unit} ({block} tokens)", remedy)
