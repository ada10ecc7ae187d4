"""SGLang's scheduler, read from the source of 0.5.23 (srt/managers: scheduler, schedule_policy, schedule_batch), not recorded.

What is here: a prefill pass whenever one can be built, else a decode step of all that run; one request at most in mid-prompt, which
takes the chunk budget first; admission that reserves a share of the outputs to come (new_token_ratio, which decays and is reset by
a retraction); retraction of the fewest outputs; the overlap scheduler, which computes one row more for every request that ends.
What is not: mixed chunks, priorities, cache-aware order, data-parallel attention, speculation.
"""

from collections import deque
from dataclasses import dataclass

from planner.errors import InputError
from planner.simulator.cluster.spec import EngineSpec
from planner.simulator.job import Job
from planner.simulator.policies import Discipline
from planner.simulator.policy_scheduler import PolicyScheduler
from planner.simulator.steps import Step
from planner.simulator.variants.checks import check_engine


@dataclass(frozen=True, slots=True)
class SglangSettings:
    """SGLang's own knobs, with its defaults.

    max_prefill_tokens : prompt tokens that one prefill pass takes beyond its first request [token]
    schedule_conservativeness : scales the share of outputs that admission reserves [1]
    initial_ratio : that share at first [1]; lowest_ratio : where it decays to, as a share of the first [1]
    decay_steps : decode steps that the decay takes
    most_reserved_tokens : outputs of one request beyond this are never reserved [token]
    retract_steps : decode steps that a retraction makes room for in its new estimate
    """

    max_prefill_tokens: int = 16384
    schedule_conservativeness: float = 1.0
    initial_ratio: float = 0.7
    lowest_ratio: float = 0.14
    decay_steps: int = 600
    most_reserved_tokens: int = 4096
    retract_steps: int = 20

    @property
    def first_ratio(self) -> float:
        """Share of the outputs to come that is reserved at first and when idle [1]."""
        return min(self.initial_ratio * self.schedule_conservativeness, 1.0)

    @property
    def last_ratio(self) -> float:
        """Share that it decays to [1]."""
        return self.first_ratio * self.lowest_ratio

    @property
    def decay(self) -> float:
        """Decrease of one decode step [1]."""
        return (self.first_ratio - self.last_ratio) / self.decay_steps


_DEFAULT = SglangSettings()


def sglang(settings: SglangSettings = _DEFAULT) -> "SglangFactory":
    """Return what EngineSpec.scheduler takes; max_num_batched_tokens is then the chunked prefill size, block_size the page size."""
    return SglangFactory(_check(settings))


@dataclass(frozen=True, slots=True)
class SglangFactory:
    """Makes SGLang schedulers."""

    settings: SglangSettings

    def __call__(self, engine: EngineSpec) -> "SglangScheduler":
        """Return a scheduler without requests."""
        check_engine(engine, "page", "Raise the chunked prefill size or lower the page size")
        return SglangScheduler(engine, self.settings)


class _Queue:
    """SGLang's waiting queue: in order of entry; what is retracted goes to the end."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def push(self, job: Job) -> None:
        """Put a job at the end."""
        self._jobs.append(job)

    def take(self, job: Job) -> None:
        """Let a job leave."""
        self._jobs.remove(job)

    def head(self) -> Job | None:
        """Return the job that is next."""
        return self._jobs[0] if self._jobs else None


@dataclass(slots=True)
class _Budget:
    """What a prefill pass may still take: chunk and input tokens, and KV tokens beside what running jobs will need."""

    chunk: int
    inputs: int
    memory: float

    @property
    def left(self) -> bool:
        return self.chunk > 0 and self.inputs > 0 and self.memory > 0.0


class SglangScheduler(PolicyScheduler):
    """SGLang's decisions on the plain loop's blocks.

    new_token_ratio : share of the outputs to come that admission now reserves [1]
    """

    def __init__(self, engine: EngineSpec, settings: SglangSettings) -> None:
        super().__init__(engine.limits, Discipline(), "eos", int(engine.coefficients.window_tokens))
        self.settings = settings
        self.new_token_ratio = settings.first_ratio
        self.queue = _Queue()
        self.room = self.queue  # type: ignore[assignment]

    def accepts(self, job: Job) -> bool:
        """Return whether prompt and outputs fit below the whole cache."""
        return super().accepts(job) and job.prompt_tokens + job.output_tokens < self._capacity

    def decide(self, now_s: float) -> Step:
        """Decide a prefill pass if there is anything to prefill that fits, else a decode step."""
        step = Step(scheduled_at_s=now_s)
        self._decisions += 1
        self._settled = True
        if not self.running:
            self.new_token_ratio = self.settings.first_ratio
        self._prefill(step, now_s)
        if not step.chunks:
            self._decode(step)
        return self._decided(step)

    def repeat(self, step: Step, times: int) -> int:
        """Let each decoder produce `times` tokens; the reserved share decays with each step."""
        self._decay(times)
        return super().repeat(step, times)

    def _queue_stays(self, last: Step) -> bool:
        return not self.num_waiting or last.running >= self.limits.max_num_seqs

    @property
    def _capacity(self) -> int:
        return self.limits.num_blocks * self.limits.block_size

    def _decay(self, times: int) -> None:
        self.new_token_ratio = max(self.new_token_ratio - times * self.settings.decay, self.settings.last_ratio)

    def _outputs_to_come(self, job: Job) -> int:
        """Return the outputs that a job may still produce, as far as SGLang counts them [token]."""
        allowed = min(job.max_new_tokens, self._capacity - job.prompt_tokens - 1)
        return min(max(allowed - job.outputs, 0), self.settings.most_reserved_tokens)

    def _prefill(self, step: Step, now_s: float) -> None:
        block = self.limits.block_size
        reserved = sum(self._outputs_to_come(job) for job in self.running if job.decoding) * self.new_token_ratio
        budget = _Budget(self.limits.max_num_batched_tokens, self.settings.max_prefill_tokens, self.pool.free * block - reserved)
        self._continue_chunk(step, budget)
        while budget.left and len(self.running) < self.limits.max_num_seqs:
            job = self.queue.head()
            if job is None:
                return
            found = self._find_cached(job)
            cached = self._cached_tokens(job, found)
            extend = job.known_tokens - cached
            held = self.pool.idle_among(found) * block + cached - len(found) * block
            if extend + self._outputs_to_come(job) >= budget.memory - held:
                return
            if step.chunks and self._paged(extend) >= budget.inputs:
                return
            whole = self._paged(extend) <= budget.chunk
            tokens = extend if whole else budget.chunk // block * block
            if tokens < 1 or self._blocks_for(cached + tokens) - len(found) + self.pool.idle_among(found) > self.pool.free:
                return
            budget.memory -= held + (self._outputs_to_come(job) if whole else 0)
            self._enter(job, found, cached, now_s)
            self._run_chunk(step, job, tokens, budget)

    def _continue_chunk(self, step: Step, budget: _Budget) -> None:
        """Give the request in mid-prompt the chunk budget first."""
        job = next((job for job in self.running if not job.decoding), None)
        if job is None:
            return
        rest = job.known_tokens - job.computed
        tokens = min(rest, budget.chunk)
        if self._more_blocks(job, tokens) > self.pool.free:
            budget.chunk = 0  # decode until blocks are free
            return
        budget.memory -= self._outputs_to_come(job) if tokens == rest else 0
        self._run_chunk(step, job, tokens, budget)

    def _run_chunk(self, step: Step, job: Job, tokens: int, budget: _Budget) -> None:
        paged = self._paged(tokens)
        budget.chunk -= paged
        budget.inputs -= paged
        budget.memory -= paged
        self._grow(job, tokens)
        self._schedule(step, job, tokens)

    def _paged(self, tokens: int) -> int:
        return self._blocks_for(tokens) * self.limits.block_size

    def _decode(self, step: Step) -> None:
        """Decode one token of each job that runs; short of blocks, retract first."""
        decoders = [job for job in self.running if job.decoding]
        if sum(self._more_blocks(job, 1) for job in decoders) > self.pool.free:
            decoders = self._retract(step, decoders)
        elif decoders:
            self._decay(1)
        for job in decoders:
            self._grow(job, 1)
            self._schedule(step, job, 1)

    def _retract(self, step: Step, decoders: list[Job]) -> list[Job]:
        """Preempt jobs, the fewest outputs first and of these the longest prompt, until the rest can decode; return the rest.

        Where SGLang would abort the last one, it is retracted too: only a request in mid-prompt can hold the blocks that it lacks.
        """
        order = sorted(decoders, key=lambda job: (job.outputs, -job.prompt_tokens), reverse=True)
        while order and sum(self._more_blocks(job, 1) for job in order) > self.pool.free:
            victim = order.pop()
            self._preempt(victim)
            step.preempted.append(victim)
        self._settled = False
        produced = sum(job.outputs for job in order) + self.settings.retract_steps * len(order)
        self.new_token_ratio = min(produced / (sum(job.max_new_tokens for job in order) + 1), 1.0)
        return [job for job in decoders if job.running]


def _check(settings: SglangSettings) -> SglangSettings:
    for name in ("max_prefill_tokens", "decay_steps", "most_reserved_tokens", "retract_steps"):
        if getattr(settings, name) < 1:
            raise InputError(f"sglang.{name}", getattr(settings, name), "must be at least 1", "Leave SGLang's default")
    for name in ("schedule_conservativeness", "initial_ratio", "lowest_ratio"):
        value = getattr(settings, name)
        if not 0.0 < value < float("inf") or (name != "schedule_conservativeness" and value > 1.0):
            raise InputError(f"sglang.{name}", value, "must be above 0, and a ratio at most 1", "Leave SGLang's default")
    return settings
