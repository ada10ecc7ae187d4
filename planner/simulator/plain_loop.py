"""vLLM's V1 scheduler as a plain Python loop: the oracle of the compiled kernel, written to be read.

It makes the decisions of vLLM 0.32's `Scheduler` and `AsyncScheduler` (running first, then waiting, whole blocks, preemption by
recompute) on a virtual clock. It is exact and slow: some thousands of requests a second.
"""

import heapq
from collections import deque
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from planner.simulator.limits import EngineLimits, Stop
from planner.simulator.plain_blocks import BlockKey, BlockPool


@dataclass(slots=True, eq=False)
class Sequence:
    """One request on its way through the scheduler; tokens counted as vLLM counts them.

    computed : tokens whose keys and values are in the cache, or will be when the batch in flight ends [token]
    outputs : output tokens that the scheduler has seen [token]
    placeholders : output tokens that batches in flight will bring [token]
    hashed : blocks of this sequence that are findable by content [block]
    shared_keys : content of the leading blocks that other requests may share
    known_hit : prompt tokens, in whole blocks, that the prefix cache is said to hold for certain [token]
    """

    index: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    shared_keys: Many[int] = ()
    known_hit: int = 0
    computed: int = 0
    outputs: int = 0
    placeholders: int = 0
    hashed: int = 0
    blocks: list[int] = field(default_factory=list)
    running: bool = False
    decoding: bool = False
    finished: bool = False
    rejected: bool = False
    preemptions: int = 0
    cached_tokens: int | None = None
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    finish_s: float | None = None

    @property
    def known_tokens(self) -> int:
        """Prompt and the outputs seen so far [token]."""
        return self.prompt_tokens + self.outputs

    @property
    def rank(self) -> tuple[int, float, int]:
        """Order under the priority policy, lowest first."""
        return (self.priority, self.arrival_s, self.index)

    def key(self, position: int) -> BlockKey:
        """Return what identifies the content of the block at `position` of this sequence."""
        return (-1, self.shared_keys[position]) if position < len(self.shared_keys) else (self.index, position)


@dataclass(slots=True)
class Row:
    """What one step does for one sequence: `tokens` new ones after `context` computed ones; samples says if a token comes out."""

    sequence: Sequence
    tokens: int
    context: int
    decodes: bool = False
    samples: bool = False
    wasted: bool = False


@dataclass(slots=True)
class Batch:
    """One step as the scheduler decided it, and when it ran."""

    rows: list[Row]
    preempted: list[int]
    used_blocks: int
    running: int
    waiting: int
    scheduled_at_s: float = 0.0
    start_s: float = 0.0
    duration_s: float = 0.0

    @property
    def end_s(self) -> float:
        """When the step's tokens come out [s]."""
        return self.start_s + self.duration_s


class PlainScheduler:
    """The scheduler's state and its three verbs: add, schedule, update."""

    def __init__(self, limits: EngineLimits, stop: Stop) -> None:
        self.limits = limits
        self.stop = stop
        self.pool = BlockPool(limits.num_blocks)
        self.running: list[Sequence] = []
        self._queue: deque[Sequence] = deque()
        self._heap: list[tuple[tuple[int, float, int], Sequence]] = []

    def add(self, sequence: Sequence) -> None:
        """Put a new request in the waiting queue."""
        if self.limits.policy == "priority":
            heapq.heappush(self._heap, (sequence.rank, sequence))
        else:
            self._queue.append(sequence)

    @property
    def num_waiting(self) -> int:
        """Sequences that wait, preempted ones among them."""
        return len(self._queue) + len(self._heap)

    def schedule(self) -> Batch:
        """Decide the next step from what is known now."""
        rows: list[Row] = []
        preempted: list[int] = []
        budget = self._schedule_running(rows, preempted)
        if not preempted:
            self._schedule_waiting(rows, budget)
        for row in rows:
            self._advance(row)
        return Batch(rows, preempted, self.pool.used, len(self.running), self.num_waiting)

    def update(self, batch: Batch) -> None:
        """Take in the tokens that a step brought; sequences that end give their blocks back."""
        for row in batch.rows:
            sequence = row.sequence
            if not row.samples:
                continue
            if sequence.finished:
                row.wasted = True
                continue
            sequence.outputs += 1
            if sequence.first_token_s is None:
                sequence.first_token_s = batch.end_s
            if self.limits.async_scheduling and sequence.running:
                sequence.placeholders -= 1
                self._hash_blocks(sequence, sequence.computed - sequence.placeholders)
            if sequence.outputs == sequence.output_tokens:
                self._finish(sequence, batch.end_s)

    def _schedule_running(self, rows: list[Row], preempted: list[int]) -> int:
        """Give running sequences their tokens in admission order; return the budget that is left [token]."""
        budget = self.limits.max_num_batched_tokens
        position = 0
        while position < len(self.running) and budget > 0:
            sequence = self.running[position]
            tokens = min(self._wanted_tokens(sequence), budget)
            if tokens > 0:
                while not self._grow(sequence, tokens):
                    victim = self._take_victim()
                    refund = next((row for row in rows if row.sequence is victim), None)
                    if refund is not None:
                        rows.remove(refund)
                        budget += refund.tokens
                        position -= 1
                    self._preempt(victim)
                    preempted.append(victim.index)
                    if victim is sequence:
                        return budget
                rows.append(Row(sequence, tokens, sequence.computed))
                budget -= tokens
            position += 1
        return budget

    def _wanted_tokens(self, sequence: Sequence) -> int:
        """Tokens that a running sequence could compute now, the budget aside [token]."""
        unseen = sequence.placeholders
        if self.stop == "length" and unseen > 0 and sequence.outputs + unseen >= sequence.output_tokens:
            return 0
        tokens = self._cut_long_prefill(sequence.known_tokens + unseen - sequence.computed)
        if self.limits.max_model_len is not None:
            tokens = min(tokens, self.limits.max_model_len - 1 - sequence.computed)
        return tokens

    def _cut_long_prefill(self, tokens: int) -> int:
        threshold = self.limits.long_prefill_token_threshold
        if not 0 < threshold < tokens:
            return tokens
        alone = len(self.running) + self.num_waiting <= 1
        return tokens if alone else threshold

    def _take_victim(self) -> Sequence:
        if self.limits.policy == "fcfs":
            return self.running.pop()
        victim = max(self.running, key=lambda sequence: sequence.rank[:2])  # of equals the first in running, as the engine does
        self.running.remove(victim)
        return victim

    def _preempt(self, victim: Sequence) -> None:
        """Free all blocks of a sequence and let it wait in front; it will compute its prompt and outputs again."""
        self.pool.give_back(victim.blocks)
        victim.blocks = []
        victim.computed = victim.placeholders = victim.hashed = 0
        victim.running = victim.decoding = False
        victim.preemptions += 1
        if self.limits.policy == "priority":
            heapq.heappush(self._heap, (victim.rank, victim))
        else:
            self._queue.appendleft(victim)

    def _schedule_waiting(self, rows: list[Row], budget: int) -> None:
        """Admit waiting sequences in order until tokens, sequences or blocks run out; the first that can't enter stops the rest."""
        while self.num_waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            sequence = self._heap[0][1] if self._heap else self._queue[0]
            found = self._find_cached(sequence)
            computed = max(len(found) * self.limits.block_size, sequence.known_hit)
            tokens = min(self._cut_long_prefill(sequence.known_tokens - computed), budget)
            reach = sequence.known_tokens if self.limits.scheduler_reserve_full_isl else computed + tokens
            spare = self.limits.watermark_blocks if self.running else 0
            needed = self._blocks_for(reach) - len(found) + self.pool.idle_among(found) + spare
            if needed > self.pool.free:
                return
            if self._heap:
                heapq.heappop(self._heap)
            else:
                self._queue.popleft()
            self.pool.share(found)
            sequence.blocks = found
            sequence.hashed = len(found)
            sequence.computed = computed
            sequence.running = True
            if sequence.cached_tokens is None:
                sequence.cached_tokens = computed
            self.running.append(sequence)
            self._grow(sequence, tokens)
            rows.append(Row(sequence, tokens, computed))
            budget -= tokens

    def _find_cached(self, sequence: Sequence) -> list[int]:
        """Return the longest run of leading blocks that the cache holds; at least one token stays to be computed."""
        found: list[int] = []
        if self.limits.enable_prefix_caching:
            for position in range((sequence.known_tokens - 1) // self.limits.block_size):
                block = self.pool.find(sequence.key(position))
                if block is None:
                    break
                found.append(block)
        return found

    def _grow(self, sequence: Sequence, tokens: int) -> bool:
        """Take the blocks that `tokens` more tokens need; False when the pool can't give them all."""
        reach = sequence.computed + tokens
        needed = self._blocks_for(reach) - len(sequence.blocks)
        if needed > 0:
            if needed > self.pool.free:
                return False
            sequence.blocks.extend(self.pool.take(needed))
        self._hash_blocks(sequence, min(reach, sequence.known_tokens))
        return True

    def _hash_blocks(self, sequence: Sequence, tokens: int) -> None:
        """Make the full blocks of a sequence's first `tokens` tokens findable."""
        if self.limits.enable_prefix_caching:
            for position in range(sequence.hashed, tokens // self.limits.block_size):
                self.pool.remember(sequence.blocks[position], sequence.key(position))
                sequence.hashed = position + 1

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _advance(self, row: Row) -> None:
        """Count a row's tokens as computed; the row brings a token when it reaches the last known one."""
        sequence = row.sequence
        row.samples = row.context + row.tokens >= sequence.known_tokens + sequence.placeholders
        row.decodes = row.context >= sequence.prompt_tokens and row.tokens == 1 and sequence.decoding
        sequence.computed += row.tokens
        sequence.decoding = row.samples
        if row.samples and self.limits.async_scheduling:
            sequence.placeholders += 1

    def _finish(self, sequence: Sequence, at_s: float) -> None:
        sequence.finished = True
        sequence.finish_s = at_s
        if sequence.running:
            self.running.remove(sequence)
            sequence.running = False
        else:
            self._remove_waiting(sequence)
        self.pool.give_back(sequence.blocks)
        sequence.blocks = []

    def _remove_waiting(self, sequence: Sequence) -> None:
        if self._heap:
            self._heap.remove((sequence.rank, sequence))
            heapq.heapify(self._heap)
        else:
            self._queue.remove(sequence)
