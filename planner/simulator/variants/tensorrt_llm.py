"""TensorRT-LLM's scheduler, read from the source of 1.2 (_torch/pyexecutor/scheduler/scheduler.py), not recorded.

What is here: the two capacity policies (guaranteed no evict: blocks to completion are reserved for each request; max utilisation:
the last started is paused when the next step doesn't fit), generation before context, contexts whole or in chunks, the overlap
scheduler. A paused request longer than the token budget is cut even where contexts otherwise aren't, so that it can come back.
What is not: block-reuse skipping, LoRA pages, beams, attention data parallelism.
"""

from dataclasses import dataclass
from typing import Literal

from planner.errors import InputError
from planner.simulator.cluster.spec import EngineSpec
from planner.simulator.job import Job
from planner.simulator.policies import Discipline
from planner.simulator.policy_scheduler import PolicyScheduler
from planner.simulator.steps import Step
from planner.simulator.variants.checks import check_engine

CapacityPolicy = Literal["guaranteed_no_evict", "max_utilization"]


@dataclass(frozen=True, slots=True)
class TensorrtLlmSettings:
    """TensorRT-LLM's own knobs, with its defaults.

    capacity_policy : what admission reserves
    enable_chunked_prefill : contexts may be cut to the token budget; else each runs whole
    """

    capacity_policy: CapacityPolicy = "guaranteed_no_evict"
    enable_chunked_prefill: bool = False


_DEFAULT = TensorrtLlmSettings()


def tensorrt_llm(settings: TensorrtLlmSettings = _DEFAULT) -> "TensorrtLlmFactory":
    """Return what EngineSpec.scheduler takes; the limits are then max_batch_size, max_num_tokens and tokens_per_block."""
    if settings.capacity_policy not in ("guaranteed_no_evict", "max_utilization"):
        raise InputError(
            "tensorrt_llm.capacity_policy",
            settings.capacity_policy,
            "must be guaranteed_no_evict or max_utilization",
            "Choose one of the two",
        )
    return TensorrtLlmFactory(settings)


@dataclass(frozen=True, slots=True)
class TensorrtLlmFactory:
    """Makes TensorRT-LLM schedulers."""

    settings: TensorrtLlmSettings

    def __call__(self, engine: EngineSpec) -> "TensorrtLlmScheduler":
        """Return a scheduler without requests."""
        check_engine(engine, "block", "Raise max_num_tokens or lower tokens_per_block")
        return TensorrtLlmScheduler(engine, self.settings)


class TensorrtLlmScheduler(PolicyScheduler):
    """TensorRT-LLM's decisions on the plain loop's blocks."""

    def __init__(self, engine: EngineSpec, settings: TensorrtLlmSettings) -> None:
        super().__init__(engine.limits, Discipline(), engine.stop, int(engine.coefficients.window_tokens))
        self.settings = settings
        self._guaranteed = settings.capacity_policy == "guaranteed_no_evict"

    def accepts(self, job: Job) -> bool:
        """Return whether the context fits the token budget, where it isn't cut, and the cache holds what the policy reserves."""
        if not self.settings.enable_chunked_prefill and job.prompt_tokens > self.limits.max_num_batched_tokens:
            return False
        return super().accepts(job) and self._to_completion(job) <= self.limits.num_blocks

    def decide(self, now_s: float) -> Step:
        """Decide the next step: generation, contexts in progress, then new requests."""
        step = Step(scheduled_at_s=now_s)
        self._decisions += 1
        self._settled = True
        if not self._guaranteed:
            self._pause(step)
        budget = self._generate(step)
        budget = self._continue_contexts(step, budget)
        if self._settled:
            self._start_contexts(step, budget, now_s)
        return self._decided(step)

    @property
    def _look_ahead(self) -> int:
        """Tokens that max utilisation wants room for in a generation request's next step: 2 with the overlap scheduler [token]."""
        return 2 if self.limits.async_scheduling else 1

    def _to_completion(self, job: Job) -> int:
        """Return the blocks that a job holds when it has used all that its client allows [block]."""
        return self._blocks_for(job.prompt_tokens + job.max_new_tokens) if self._guaranteed else 0

    def _all_fit(self, times: int) -> bool:
        ahead = 0 if self._guaranteed else self._look_ahead
        return sum(self._more_blocks(job, times + ahead) for job in self.running) <= self.pool.free

    def _still_wants(self, job: Job) -> bool:
        """Whether a generation request has a token to compute; one that is known to end has not."""
        return self._wanted_tokens(job) > 0

    def _next_tokens(self, job: Job) -> int:
        """Return the tokens of a running job that max utilisation counts for its next step [token]."""
        last = job.prompt_tokens + job.output_tokens - 1
        if job.decoding:
            return min(self._look_ahead, max(last - job.computed, 0))
        return min(job.known_tokens - job.computed, self.limits.max_num_batched_tokens)

    def _pause(self, step: Step) -> None:
        """Pause the last started until the next step of the others fits; nobody is admitted in a step that pauses."""
        position, needed = 0, 0
        while position < len(self.running):
            job = self.running[position]
            more = max(self._more_blocks(job, self._next_tokens(job)), 0) if self._still_wants(job) else 0
            if needed + more <= self.pool.free:
                needed += more
                position += 1
                continue
            victim = self.running[-1]
            self._preempt(victim)
            step.preempted.append(victim)
            self._settled = False

    def _generate(self, step: Step) -> int:
        """Give each generation request its token; return the budget that is left [token]."""
        budget = self.limits.max_num_batched_tokens
        for job in self.running:
            if job.decoding and self._still_wants(job) and budget > 0:
                self._grow(job, 1)
                self._schedule(step, job, 1)
                budget -= 1
        return budget

    def _continue_contexts(self, step: Step, budget: int) -> int:
        for job in self.running:
            if job.decoding:
                continue
            tokens = self._chunk(job.known_tokens - job.computed, budget)
            if tokens < 1 or self._more_blocks(job, tokens) > self.pool.free:
                return 0
            self._grow(job, tokens)
            self._schedule(step, job, tokens)
            budget -= tokens
        return budget

    def _start_contexts(self, step: Step, budget: int, now_s: float) -> None:
        """Admit in order until the capacity policy or the token budget stops at one that doesn't fit."""
        promised = sum(max(self._to_completion(job) - len(job.blocks), 0) for job in self.running)
        ahead = 0 if self._guaranteed else sum(self._still_short(job) for job in self.running)
        while budget > 0 and len(self.running) < self.limits.max_num_seqs:
            job = self.room.best(now_s, ())
            if job is None:
                return
            found = self._find_cached(job)
            computed = self._cached_tokens(job, found)
            tokens = self._chunk(job.known_tokens - computed, budget)
            needed = max(self._to_completion(job), self._blocks_for(self._next_reach(job)))
            short = needed - len(found) + self.pool.idle_among(found)
            if tokens < 1 or short + promised + ahead > self.pool.free:
                return
            self._enter(job, found, computed, now_s)
            self._grow(job, tokens)
            self._schedule(step, job, tokens)
            promised += max(self._to_completion(job) - len(job.blocks), 0)
            if not self._guaranteed:
                ahead += needed - len(job.blocks)
            budget -= tokens

    def _next_reach(self, job: Job) -> int:
        """Return the tokens that a new job holds after its first generation step, if it has one [token]."""
        last = job.prompt_tokens + job.output_tokens - 1
        return max(min(job.known_tokens + 1, last), job.known_tokens)

    def _still_short(self, job: Job) -> int:
        """Return the blocks that a running job's next step will take, after this one is decided [block]."""
        return max(self._more_blocks(job, self._next_tokens(job)), 0) if self._still_wants(job) else 0

    def _chunk(self, rest: int, budget: int) -> int:
        """Return the context tokens to run now: all, or where it may be cut the whole blocks that the budget holds [token]."""
        if rest <= budget:
            return rest
        cut = self.settings.enable_chunked_prefill or rest > self.limits.max_num_batched_tokens
        return budget - budget % self.limits.block_size if cut else 0
