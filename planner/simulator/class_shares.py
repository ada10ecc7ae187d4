"""What each class of requests holds of an engine, against what it may hold."""

from planner.simulator.job import Job
from planner.simulator.limits import EngineLimits
from planner.simulator.policies import Discipline


class ClassShares:
    """KV blocks held by each class, and the prefill tokens that each may still have in the step that is being decided.

    held, peak : blocks by class, now and at most; a block that two requests share counts for each [block]
    """

    def __init__(self, limits: EngineLimits, discipline: Discipline) -> None:
        self._limits = limits
        self._discipline = discipline
        self._prefill_left: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self.peak: dict[int, int] = {}

    def most_blocks(self, class_index: int) -> int | None:
        """Return the most blocks that a class may hold [block]; None for no bound."""
        tokens = self._discipline.class_limit(class_index).max_kv_tokens
        return None if tokens is None else tokens // self._limits.block_size

    def fits(self, class_index: int, more: int) -> bool:
        """Return whether a class may hold `more` blocks than now."""
        most = self.most_blocks(class_index)
        return most is None or more <= 0 or self.held.get(class_index, 0) + more <= most

    def count(self, job: Job, more: int) -> None:
        """Count blocks that a job took, or gave back when negative."""
        held = self.held.get(job.class_index, 0) + more
        self.held[job.class_index] = held
        if held > self.peak.get(job.class_index, 0):
            self.peak[job.class_index] = held

    def begin_step(self) -> None:
        """Give each class its prefill tokens again."""
        self._prefill_left.clear()

    def prefill_left(self, class_index: int) -> int:
        """Return the prefill tokens that a class may still have in this step [token]."""
        budget = self._limits.max_num_batched_tokens
        share = self._discipline.class_limit(class_index).prefill_share
        return budget if share is None else self._prefill_left.get(class_index, int(share * budget))

    def use_prefill(self, class_index: int, tokens: int) -> None:
        """Count prefill tokens of a class in this step; negative when they are withdrawn."""
        if self._discipline.class_limit(class_index).prefill_share is not None:
            self._prefill_left[class_index] = self.prefill_left(class_index) - tokens
