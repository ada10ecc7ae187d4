"""Static batching, the baseline: a batch starts together, and no request enters before its longest output has ended."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.attention_pairs import causal_pairs, window_pairs
from planner.errors import InputError
from planner.simulator.inputs import RequestArrays
from planner.simulator.limits import check_coefficients
from planner.step_model import StepCoefficients, StepShape, step_s

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StaticBatching:
    """How batches form.

    batch : most requests in a batch [request]
    kv_tokens : KV that the engine holds; a batch must fit with all its outputs [token]; None: it always does
    padded : every row is computed to the batch's longest prompt and until its longest output has ended, a rectangle of tokens;
        else rows that have ended cost nothing more, and prompts only their own tokens
    wait_s : how long a batch that isn't full waits for more, after its first request has come and the engine is free [s]
    """

    batch: int
    kv_tokens: int | None = None
    padded: bool = True
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class StaticResult:
    """Per-request times in the caller's order, NaN for those that could never fit.

    start_s : when its batch started; first_token_s, finish_s : of its own tokens [s]
    released_s : end of its batch, which is when a client without streaming gets the answer [s]
    batch_index : which batch it was in; -1 where refused
    steps : prefill passes and decode steps; busy_s : time in which one ran; makespan_s : from 0 to the end of the last batch [s]
    computed_rows, useful_rows : decode rows computed, and those that brought a token [token]
    """

    arrival_s: Floats
    output_tokens: Ints
    start_s: Floats
    first_token_s: Floats
    finish_s: Floats
    released_s: Floats
    batch_index: Ints
    steps: int
    busy_s: float
    makespan_s: float
    computed_rows: int
    useful_rows: int

    @property
    def wasted_share(self) -> float:
        """Share of the decode rows that brought no token [1]; 0 where nothing is padded."""
        return 1.0 - self.useful_rows / self.computed_rows if self.computed_rows else 0.0

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens of all served requests over the busy time [token/s]."""
        served = self.batch_index >= 0
        return float(self.output_tokens[served].sum()) / self.busy_s if self.busy_s > 0.0 else 0.0


def simulate_static(requests: RequestArrays, batching: StaticBatching, coefficients: StepCoefficients) -> StaticResult:
    """Serve requests in static batches, in order of arrival, and return each one's times.

    A batch's prompts go in one prefill pass, which brings each request's first token; then all decode together.
    """
    _check(batching)
    c = check_coefficients(coefficients)
    order = np.argsort(requests.arrival_s, kind="stable")
    total = requests.prompt_tokens + requests.output_tokens
    fits = (requests.prompt_tokens >= 1) & (requests.output_tokens >= 1)
    if batching.kv_tokens is not None:
        fits &= total <= batching.kv_tokens
    queue = order[fits[order]]
    run = _Run(requests, batching, c)
    first = 0
    while first < len(queue):
        start_s, last = run.gather(queue, first)
        run.serve(queue[first:last], start_s)
        first = last
    return run.result()


class _Run:
    """The engine's clock and what has become of the requests."""

    def __init__(self, requests: RequestArrays, batching: StaticBatching, c: StepCoefficients) -> None:
        count = len(requests)
        self.requests = requests
        self.batching = batching
        self.c = c
        self.free_s = 0.0
        self.start_s, self.first_token_s, self.finish_s, self.released_s = (np.full(count, np.nan) for _ in range(4))
        self.batch_index = np.full(count, -1, np.int64)
        self.batches = self.steps = self.computed_rows = self.useful_rows = 0
        self.busy_s = 0.0

    def gather(self, queue: Ints, first: int) -> tuple[float, int]:
        """Return when the next batch starts and where in the queue it ends: when it is full, or the wait is over."""
        arrival_s = self.requests.arrival_s
        most = self._most(queue, first)
        begin_s = max(self.free_s, float(arrival_s[queue[first]]))
        full_s = max(begin_s, float(arrival_s[queue[most - 1]]))
        never_fills = most < first + self.batching.batch and most == len(queue)
        start_s = full_s if full_s <= begin_s + self.batching.wait_s and not never_fills else begin_s + self.batching.wait_s
        last = first + int(np.searchsorted(arrival_s[queue[first:most]], start_s, side="right"))
        return start_s, last

    def _most(self, queue: Ints, first: int) -> int:
        """Return where in the queue the batch must end: at its size, or where KV for all prompts and outputs runs out."""
        batching = self.batching
        rows = queue[first : first + batching.batch]
        if batching.kv_tokens is None:
            return first + len(rows)
        prompt, output = self.requests.prompt_tokens[rows], self.requests.output_tokens[rows]
        if batching.padded:
            needed = (np.maximum.accumulate(prompt) + np.maximum.accumulate(output)) * np.arange(1, len(rows) + 1)
        else:
            needed = np.cumsum(prompt + output)
        return first + max(int(np.searchsorted(needed, batching.kv_tokens, side="right")), 1)

    def serve(self, rows: Ints, start_s: float) -> None:
        """Run one batch to its end."""
        prompt, output = self.requests.prompt_tokens[rows], self.requests.output_tokens[rows]
        prefill_s = float(step_s(self._prefill(prompt), self.c))
        ends_s = start_s + prefill_s + np.concatenate([[0.0], np.cumsum(self._decode_s(prompt, output))])
        self.start_s[rows] = start_s
        self.first_token_s[rows] = ends_s[0]
        self.finish_s[rows] = ends_s[output - 1]
        self.released_s[rows] = ends_s[-1]
        self.batch_index[rows] = self.batches
        self.batches += 1
        self.steps += len(ends_s)
        self.busy_s += float(ends_s[-1]) - start_s
        self.useful_rows += int((output - 1).sum())
        self.computed_rows += len(rows) * int(output.max() - 1) if self.batching.padded else int((output - 1).sum())
        self.free_s = float(ends_s[-1])

    def _prefill(self, prompt: Ints) -> StepShape:
        lengths = np.full(len(prompt), prompt.max()) if self.batching.padded else prompt
        computed = lengths.astype(np.float64)
        return StepShape(
            scheduled_tokens=float(lengths.sum()),
            sampled_tokens=float(len(prompt)),
            sequences=float(len(prompt)),
            prefill_pairs=float(causal_pairs(0.0, computed).sum()),
            prefill_window_pairs=float(window_pairs(0.0, computed, self.c.window_tokens).sum()),
        )

    def _decode_s(self, prompt: Ints, output: Ints) -> Floats:
        """Return the time of each decode step of a batch [s]; step k computes every row that needs more than k tokens."""
        steps = int(output.max()) - 1
        if steps == 0:
            return np.empty(0)
        k = np.arange(1.0, steps + 1.0)
        if self.batching.padded:
            rows = np.full(steps, float(len(prompt)))
            context = len(prompt) * (float(prompt.max()) + k - 1.0)
            window = len(prompt) * np.minimum(float(prompt.max()) + k - 1.0, self.c.window_tokens)
        else:
            rows = _still_running(np.ones(len(prompt)), output, steps)
            context = _still_running(prompt.astype(np.float64), output, steps) + rows * (k - 1.0)
            window = self._window_context(prompt, output, steps)
        shape = StepShape(
            scheduled_tokens=rows,
            sampled_tokens=rows,
            sequences=rows,
            decode_sequences=rows,
            decode_context_tokens=context,
            decode_window_tokens=window,
        )
        return np.broadcast_to(np.asarray(step_s(shape, self.c), np.float64), steps)

    def _window_context(self, prompt: Ints, output: Ints, steps: int) -> Floats:
        window = np.zeros(steps)
        if self.c.window_tokens > 0.0:
            for tokens, outputs in zip(prompt.tolist(), output.tolist(), strict=True):
                window[: outputs - 1] += np.minimum(tokens + np.arange(outputs - 1.0), self.c.window_tokens)
        return window

    def result(self) -> StaticResult:
        """Return what became of the requests."""
        return StaticResult(
            arrival_s=self.requests.arrival_s,
            output_tokens=self.requests.output_tokens,
            start_s=self.start_s,
            first_token_s=self.first_token_s,
            finish_s=self.finish_s,
            released_s=self.released_s,
            batch_index=self.batch_index,
            steps=self.steps,
            busy_s=self.busy_s,
            makespan_s=self.free_s,
            computed_rows=self.computed_rows,
            useful_rows=self.useful_rows,
        )


def _still_running(weight: Floats, output: Ints, steps: int) -> Floats:
    """Return, for each decode step, the summed weight of the requests that still need a token."""
    by_output: Floats = np.bincount(output - 1, weights=weight, minlength=steps + 1).astype(np.float64)
    remaining: Floats = np.cumsum(by_output[::-1])[::-1][1 : steps + 1]
    return remaining


def _check(batching: StaticBatching) -> None:
    if batching.batch < 1:
        raise InputError("batch", batching.batch, "must be at least 1", "Give the number of requests in a batch")
    if batching.kv_tokens is not None and batching.kv_tokens < 1:
        raise InputError("kv_tokens", batching.kv_tokens, "must be at least 1", "Leave it unset for no bound")
    if not 0.0 <= batching.wait_s < float("inf"):
        raise InputError("wait_s", batching.wait_s, "must be finite and at least 0", "Give seconds")
