"""vLLM's scheduler with another policy in its place: any rank, KV and prefill limits by class, displacement, preloaded KV.

Everything else (running first, token budget, chunks, blocks, prefix cache, asynchronous scheduling) is the plain loop's; with the
policies that vLLM has and no limit by class, so is every step.
"""

from planner.simulator.class_shares import ClassShares
from planner.simulator.job import Job, never_fits
from planner.simulator.limits import EngineLimits, Stop, check_limits
from planner.simulator.plain_loop import PlainScheduler, Row
from planner.simulator.plain_loop import Sequence as PlainSequence
from planner.simulator.policies import Discipline, Ledger, check_discipline
from planner.simulator.steps import Step
from planner.simulator.waiting_room import WaitingRoom

_FEWEST_REPEATS = 3


class PolicyScheduler(PlainScheduler):
    """The scheduler's state and its verbs: add, decide, take_in, and repeat for stretches of equal steps.

    recomputed_tokens : tokens whose keys and values were lost to preemption and computed again [token]
    wasted_rows : rows computed for a job that had already stopped [token]
    """

    running: list[Job]  # type: ignore[assignment]

    def __init__(self, limits: EngineLimits, discipline: Discipline, stop: Stop = "length", window_tokens: int = 0) -> None:
        super().__init__(check_limits(limits), stop)
        self.policy = check_discipline(discipline, limits)
        self.discipline = discipline
        self.ledger = Ledger(discipline)
        self.room = WaitingRoom(self.policy, self.ledger)
        self.shares = ClassShares(limits, discipline)
        self.recomputed_tokens = 0
        self.wasted_rows = 0
        self._window_tokens = window_tokens
        self._decisions = 0
        self._settled = False
        self._over_limit: set[int] = set()

    @property
    def asynchronous(self) -> bool:
        """A step is decided when the one before it starts."""
        return self.limits.async_scheduling

    @property
    def num_waiting(self) -> int:
        """Jobs that wait, preempted ones among them."""
        return len(self.room)

    def accepts(self, job: Job) -> bool:
        """Return whether the engine, and the limit of the job's class, could ever hold the job."""
        most = self.shares.most_blocks(job.class_index)
        needed = self._blocks_for(job.prompt_tokens + job.output_tokens - 1)
        return not never_fits(job, self.limits) and (most is None or needed <= most)

    def add(self, sequence: PlainSequence) -> None:
        """Put a new job in the waiting queue."""
        self.room.push(_job(sequence))
        self._settled = False

    def drop(self, job: Job) -> None:
        """Take a job out of the waiting queue; it won't come back."""
        self.room.take(job)
        self._settled = False

    def decide(self, now_s: float) -> Step:
        """Decide the next step from what is known now."""
        step = Step(scheduled_at_s=now_s)
        self._decisions += 1
        self._over_limit.clear()
        self.shares.begin_step()
        if self.policy.displaces:
            self._displace(step, now_s)
        self._settled = True
        budget = self._serve_running(step)
        if self._settled:
            self._admit(step, budget, now_s)
        return self._decided(step)

    def _decided(self, step: Step) -> Step:
        """Return the step with the state that its decision leaves."""
        if self._window_tokens:
            step.window_tokens = sum(min(job.computed - 1, self._window_tokens) for job in step.decoders)
        step.used_blocks = self.pool.used
        step.running = len(self.running)
        step.waiting = self.num_waiting
        return step

    def take_in(self, step: Step) -> list[Job]:
        """Note the tokens that a step brought; jobs that end give their blocks back and are returned."""
        ended: list[Job] = []
        at_s = step.end_s
        accounts = self.ledger.accounts
        asynchronous = self.limits.async_scheduling
        caching = self.limits.enable_prefix_caching
        for job in step.token_takers() if step.chunks else step.decoders:
            if job.finished:
                self.wasted_rows += 1
                continue
            job.outputs += 1
            accounts[job.tenant].output_tokens += 1
            if job.first_token_s is None:
                job.first_token_s = at_s
            if asynchronous and job.running:
                job.placeholders -= 1
                if caching:
                    self._hash_blocks(job, job.computed - job.placeholders)
            if job.outputs == job.output_tokens:
                self.shares.count(job, -len(job.blocks))
                self._finish(job, at_s)
                ended.append(job)
                self._settled = False
        return ended

    def repeats(self, step: Step, following: Step | None) -> int:
        """Return how many step ends from now change nothing but the decoders' contexts: a safe bound, not the largest."""
        last = following if self.asynchronous else step
        if last is None or step.chunks or last.chunks or not self._queue_stays(last):
            return 0
        count = len(self.running)
        if len(step.decoders) != count or len(last.decoders) != count:
            return 0
        times = 2**31
        for job in self.running:
            if job.first_token_s is None:
                return 0
            times = min(times, job.output_tokens - job.outputs)
        times -= 2 if self.asynchronous else 1
        while times >= _FEWEST_REPEATS and not self._all_fit(times):
            times //= 2
        return times if times >= _FEWEST_REPEATS else 0

    def repeat(self, step: Step, times: int) -> int:
        """Let each decoder produce `times` tokens, and be scheduled for as many more; return the blocks then in use."""
        accounts = self.ledger.accounts
        block_size, caching = self.limits.block_size, self.limits.enable_prefix_caching
        for job in step.decoders:
            job.computed += times
            job.outputs += times
            more = -(-job.computed // block_size) - len(job.blocks)
            if more > 0:
                job.blocks.extend(self.pool.take(more))
                self.shares.count(job, more)
            if caching:
                self._hash_blocks(job, min(job.computed, job.known_tokens))
            accounts[job.tenant].output_tokens += times
        self._decisions += times
        return self.pool.used

    def _queue_stays(self, last: Step) -> bool:
        """Whether no waiting job can enter while only contexts grow: none waits, no slot is free, or the next doesn't fit."""
        if not self.num_waiting:
            return True
        if self.policy.displaces:
            return False
        if last.running >= self.limits.max_num_seqs:
            return True
        return self._settled and not self.policy.by_tenant and self.discipline.ageing_s is None

    def _all_fit(self, times: int) -> bool:
        by_class: dict[int, int] = {}
        block_size = self.limits.block_size
        for job in self.running:
            more = -(-(job.computed + times) // block_size) - len(job.blocks)
            by_class[job.class_index] = by_class.get(job.class_index, 0) + more
        return sum(by_class.values()) <= self.pool.free and all(self.shares.fits(*item) for item in by_class.items())

    def _serve_running(self, step: Step) -> int:
        """Give running jobs their tokens in admission order; return the budget that is left [token]."""
        budget = self.limits.max_num_batched_tokens
        running = self.running
        decoders = step.decoders
        block_size = self.limits.block_size
        asynchronous = self.limits.async_scheduling
        foresees = self.stop == "length"
        quick = not self.limits.enable_prefix_caching and (foresees or self.limits.max_model_len is None)
        position = 0
        while position < len(running) and budget > 0:
            job = running[position]
            position += 1
            if quick and job.decoding and job.computed % block_size:  # its last block has room
                unseen = job.placeholders
                if foresees and unseen and job.outputs + unseen >= job.output_tokens:
                    continue
                # what _schedule does for a decoder, without a call: nearly all rows are such ones
                budget -= 1
                job.stamp = self._decisions
                decoders.append(job)
                step.context_tokens += job.computed
                job.computed += 1
                if asynchronous:
                    job.placeholders = unseen + 1
            else:
                tokens = min(self._wanted_tokens(job), budget)
                if not job.decoding:
                    tokens = min(tokens, self.shares.prefill_left(job.class_index))
                if tokens < 1:
                    continue
                position, budget = self._make_room(step, job, tokens, (position, budget))
                if not job.running:
                    if not self._settled:
                        return budget
                    continue
                budget -= tokens
                self._schedule(step, job, tokens)
        return budget

    def _make_room(self, step: Step, job: Job, tokens: int, place: tuple[int, int]) -> tuple[int, int]:
        """Preempt until the job can grow, or is itself preempted; return the position of the next and the budget with refunds.

        Where the pool is short, nobody is admitted in this step; where the class's limit is, nobody of the class.
        """
        position, budget = place
        while not self._grow(job, tokens):
            pool_is_short = self.shares.fits(job.class_index, self._more_blocks(job, tokens))
            if pool_is_short:
                self._settled = False
            else:
                self._over_limit.add(job.class_index)
            victim = self._choose_victim(None if pool_is_short else job.class_index)
            refund = self._withdraw(step, victim)
            budget += refund
            position -= refund > 0 or (victim is job and not pool_is_short)
            self._preempt(victim)
            step.preempted.append(victim)
            if victim is job:
                break
        return position, budget

    def _more_blocks(self, job: Job, tokens: int) -> int:
        return self._blocks_for(job.computed + tokens) - len(job.blocks)

    def _schedule(self, step: Step, job: Job, tokens: int) -> None:
        """Put a job's row in the step and count its tokens as computed."""
        job.stamp = self._decisions
        if job.decoding:
            step.decoders.append(job)
            step.context_tokens += job.computed
            job.computed += 1
            if self.limits.async_scheduling:
                job.placeholders += 1
            return
        row = Row(job, tokens, job.computed)
        self._advance(row)
        step.add_chunk(row)
        self.shares.use_prefill(job.class_index, tokens)

    def _withdraw(self, step: Step, victim: Job) -> int:
        """Take a victim's row out of the step that is being decided; return its tokens [token]."""
        if victim.stamp != self._decisions:
            return 0
        decodes = victim in step.decoders
        tokens = step.withdraw(victim)
        victim.computed -= tokens
        if not decodes:
            self.shares.use_prefill(victim.class_index, -tokens)
        return tokens

    def _choose_victim(self, class_index: int | None) -> Job:
        """Return the running job to preempt, of one class when that class's limit is what is short."""
        among = self.running if class_index is None else [job for job in self.running if job.class_index == class_index]
        if not self.policy.victim_ranks_last:
            return among[-1]
        return max(among, key=lambda job: (self.policy.rank(job, self.ledger), job.arrival_s))  # of equals the first, as vLLM does

    def _preempt(self, victim: PlainSequence) -> None:
        """Free all blocks of a running job and let it wait; it will compute its prompt and outputs again."""
        job = _job(victim)
        self.running.remove(job)
        self.shares.count(job, -len(job.blocks))
        self.pool.give_back(job.blocks)
        job.blocks = []
        job.lost_tokens = job.computed
        job.computed = job.placeholders = job.hashed = job.preloaded_tokens = 0
        job.running = job.decoding = False
        job.preemptions += 1
        self.room.push(job)

    def _displace(self, step: Step, now_s: float) -> None:
        """Preempt running jobs that rank after the next waiting one, as long as that one could then take tokens in this step."""
        while self.running and (job := self.room.best(now_s, ())) is not None:
            needed = self._blocks_for(job.known_tokens)
            slots_short = len(self.running) >= self.limits.max_num_seqs
            if not self.shares.fits(job.class_index, needed) or (not slots_short and needed <= self.pool.free):
                return
            victim = self._choose_victim(None)
            wanted = sum(max(self._wanted_tokens(other), 0) for other in self.running if other is not victim)
            ranks_after = self.policy.rank(victim, self.ledger) > self.policy.rank(job, self.ledger)
            if not ranks_after or wanted >= self.limits.max_num_batched_tokens:
                return
            self._preempt(victim)
            step.preempted.append(victim)

    def _admit(self, step: Step, budget: int, now_s: float) -> None:
        """Admit waiting jobs in the policy's order; who doesn't fit the pool stops all, who is over its class's limit its class."""
        barred = set(self._over_limit)
        while budget > 0 and len(self.running) < self.limits.max_num_seqs:
            job = self.room.best(now_s, barred)
            if job is None or job in step.preempted:
                return
            found = self._find_cached(job)
            computed = max(self._cached_tokens(job, found), job.preloaded_tokens)
            decodes = job.preloaded_tokens > 0
            tokens = min(self._cut_long_prefill(job.known_tokens - computed), budget)
            if not decodes:
                tokens = min(tokens, self.shares.prefill_left(job.class_index))
            reach = job.known_tokens if self.limits.scheduler_reserve_full_isl else computed + tokens
            needed = self._blocks_for(reach)
            if tokens < 1 or not self.shares.fits(job.class_index, needed):
                barred.add(job.class_index)
                continue
            spare = self.limits.watermark_blocks if self.running else 0
            if needed - len(found) + self.pool.idle_among(found) + spare > self.pool.free:
                return
            self._enter(job, found, computed, now_s)
            self._grow(job, tokens)
            job.decoding = decodes
            self._schedule(step, job, tokens)
            budget -= tokens

    def _cached_tokens(self, job: Job, found: list[int]) -> int:
        """Return the leading tokens that needn't be computed: those found by content, or said to be cached [token]."""
        return max(len(found) * self.limits.block_size, job.known_hit)

    def _enter(self, job: Job, found: list[int], computed: int, now_s: float) -> None:
        """Move a job from waiting to running, with the blocks that the cache holds of it."""
        self.room.take(job)
        self.pool.share(found)
        self.shares.count(job, len(found))
        job.blocks = found
        job.hashed = len(found)
        job.computed = computed
        job.running = True
        if job.cached_tokens is None:
            job.cached_tokens = self._cached_tokens(job, found)
        if job.first_scheduled_s is None:
            job.first_scheduled_s = now_s
            account = self.ledger.accounts[job.tenant]
            account.requests += 1
            account.prompt_tokens += 0 if job.preloaded_tokens else job.prompt_tokens
        self.recomputed_tokens += max(min(job.lost_tokens, job.known_tokens) - computed, 0)
        job.lost_tokens = 0
        self.running.append(job)

    def _grow(self, sequence: PlainSequence, tokens: int) -> bool:
        """Take the blocks that `tokens` more tokens need; False when the pool or the class's limit can't give them all."""
        job = _job(sequence)
        more = self._more_blocks(job, tokens)
        if not self.shares.fits(job.class_index, more) or not super()._grow(job, tokens):
            return False
        self.shares.count(job, more)
        return True

    def _remove_waiting(self, sequence: PlainSequence) -> None:
        self.room.take(_job(sequence))


def _job(sequence: PlainSequence) -> Job:
    assert isinstance(sequence, Job)
    return sequence
