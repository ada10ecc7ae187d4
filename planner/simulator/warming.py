"""Compiles the simulator's loops before anyone waits for them."""

from collections.abc import Callable

import numpy as np

from planner.simulator.clients import Clients, DoorRule, Rules, simulate_clients
from planner.simulator.compiled import is_compiled
from planner.simulator.inputs import RequestTable
from planner.simulator.limits import EngineLimits
from planner.simulator.run import simulate
from planner.step_model import StepCoefficients


def warm_up(say: Callable[[str], None]) -> None:
    """Compile the loops, or load them from disk, so that the first simulation doesn't wait; `say` gets a line before and after."""
    say("Loading the simulator" if is_compiled() else "Compiling the simulator: about half a minute, once")
    table = RequestTable(np.array([0.0]), np.array([8], np.int64), np.array([2], np.int64))
    one = StepCoefficients(**(dict.fromkeys(StepCoefficients._fields, 0.0) | {"layers_s": 1.0}))
    limits = EngineLimits(max_num_seqs=1, max_num_batched_tokens=8, block_size=16, num_blocks=4)
    simulate(table, limits, one)
    simulate_clients(table, (limits, one), Rules(DoorRule("requests", 1)), Clients(), np.random.default_rng(0))
    say("The simulator is ready")
