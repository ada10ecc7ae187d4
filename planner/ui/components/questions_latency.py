"""The Latency questions."""

from planner.ui.components import questions_latency_async as async_scheduling
from planner.ui.components import questions_latency_flight as flight
from planner.ui.components import questions_latency_long as long_prompt
from planner.ui.components import questions_latency_queue as queue

VIEWS = (flight.VIEW, queue.VIEW, long_prompt.VIEW, async_scheduling.VIEW)
