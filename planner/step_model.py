"""The time of one engine step, from the sums that describe its batch.

A step runs decode sequences and prefill chunks together. Its time is a sum of parts, each a roofline over the bytes and FLOPs that
the part moves, plus a constant for each layer, the all-reduces of tensor parallelism and the host's own time:

    t_gpu = t_layers + smax(weights, linear FLOPs) + smax(head weights, head FLOPs) + decode attention + prefill attention
            + activations + all-reduces
    t     = max(t_gpu, t_host) + t_exposed with asynchronous scheduling, t_gpu + t_host + t_exposed without

Attention stands outside the linear layers' maximum: it runs in kernels of its own, one after the other. t_exposed is host work for
each sequence that no scheduling hides: in measured sweeps of vLLM behind its HTTP server, step time grows by the same amount for
each sequence whether or not the GPU is the slower side, so it adds to the longer of the two. The functions below take floats or
arrays alike and compile under numba, so that the planner, the charts and the simulator share one formula.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

_SMALLEST_S = 1e-300  # keeps 0/0 out of the norm's ratio; far below any time

Number = float | npt.NDArray[np.float64]
Part = Literal["layers", "linear", "head", "decode_attention", "prefill_attention", "activation", "all_reduce", "host"]
Limit = Literal["bandwidth", "compute", "communication", "launch overhead", "host"]


class StepShape(NamedTuple):
    """The batch of one step as sums over its sequences; floats or arrays of one shape.

    scheduled_tokens : all tokens computed, decode rows and prefill chunks together [token]
    sampled_tokens : rows that go through the language-model head: decode rows and chunks that end a prompt [token]
    sequences : sequences in the batch [seq]
    decode_sequences : sequences that decode [seq]
    decode_context_tokens : sum over decode sequences of the tokens each has cached [token]
    decode_window_tokens : the same with each context cut at the model's sliding window [token]
    prefill_pairs : sum over chunks of q * (p + q / 2), q new tokens on p cached ones [token²]
    prefill_window_pairs : the same where each query sees at most the sliding window [token²]
    prefill_context_tokens : sum over chunks of the tokens that each has cached and reads; 0 leaves that reading out [token]
    """

    scheduled_tokens: Number
    sampled_tokens: Number
    sequences: Number
    decode_sequences: Number = 0.0
    decode_context_tokens: Number = 0.0
    decode_window_tokens: Number = 0.0
    prefill_pairs: Number = 0.0
    prefill_window_pairs: Number = 0.0
    prefill_context_tokens: Number = 0.0


class StepCoefficients(NamedTuple):
    """Seconds that each unit of a step costs on one GPU of one deployment; floats only, so that numba can carry it.

    layers_s : constant of all layers (kernel launches, synchronisation) [s]
    dense_weights_s : time to stream the linear layers' weights that every step reads [s]
    expert_weights_s : time to stream all of this GPU's routed experts [s]; 0 for a dense model
    expert_miss_ratio : chance that one token misses one expert, 1 - k/E [1]; 1 for a dense model
    linear_s_per_token : linear layers' FLOPs of one token [s/token]
    head_weights_s, head_s_per_token : the same two for the language-model head, per sampled token
    decode_s_per_context_token : KV read of full-attention layers for one cached token [s/token]
    decode_s_per_window_token : the same of sliding-window layers [s/token]
    decode_s_per_sequence : recurrent state read and written for one decode sequence [s/seq]
    prefill_s_per_pair, prefill_s_per_window_pair : attention FLOPs of one query-key pair, full and windowed layers [s]
    activation_s_per_token : activations read and written for one token [s/token]
    all_reduce_s, all_reduce_s_per_token : latency of all all-reduces of a step, and transfer of one token [s], [s/token]
    host_s, host_s_per_sequence : CPU time of a step and of each sequence in it that asynchronous scheduling hides [s], [s/seq]
    mix_factor : how much dearer KV reads of decode rows are in a step that also holds prefill chunks [1]
    inverse_p : 1/p of the p-norm that joins memory and compute time; 0 is the hard maximum [1]
    window_tokens : sliding window of the windowed layers [token]; 0 when the model has none
    host_overlap : 1 when the host works while the GPU does (asynchronous scheduling), else 0 [1]
    exposed_host_s_per_sequence : host time of each sequence that nothing hides [s/seq]; 0 unless measured
    expert_spread : how many fresh experts each further token draws, against uniform routing [1]; 1 is uniform, below 1 skewed
    """

    layers_s: float
    dense_weights_s: float
    expert_weights_s: float
    expert_miss_ratio: float
    linear_s_per_token: float
    head_weights_s: float
    head_s_per_token: float
    decode_s_per_context_token: float
    decode_s_per_window_token: float
    decode_s_per_sequence: float
    prefill_s_per_pair: float
    prefill_s_per_window_pair: float
    activation_s_per_token: float
    all_reduce_s: float
    all_reduce_s_per_token: float
    host_s: float
    host_s_per_sequence: float
    mix_factor: float
    inverse_p: float
    window_tokens: float
    host_overlap: float
    exposed_host_s_per_sequence: float = 0.0
    expert_spread: float = 1.0


def scaled(c: StepCoefficients, factor: float) -> StepCoefficients:
    """Return coefficients with every time multiplied by a factor [1]; ratios, counts and switches stay."""
    times = {name: value * factor for name, value in c._asdict().items() if name.endswith("_s") or "_s_per_" in name}
    return c._replace(**times)


def smooth_max(a: Number, b: Number, inverse_p: float) -> Number:
    """Join two times that partly overlap: (a^p + b^p)^(1/p) with p = 1/inverse_p; the hard maximum at inverse_p = 0.

    a, b : times, not negative [s]
    inverse_p : 0 (perfect overlap) to 1 (none: the sum) [1]

    Lies between max(a, b) and a + b, and grows with both.

    >>> float(smooth_max(3.0, 4.0, 0.5)), float(smooth_max(3.0, 4.0, 0.0))
    (5.0, 4.0)
    """
    longer = np.maximum(a, b)
    if inverse_p == 0.0:
        return longer
    ratio = np.minimum(a, b) / np.maximum(longer, _SMALLEST_S)
    return longer * (1.0 + ratio ** (1.0 / inverse_p)) ** inverse_p


def experts_hit(scheduled_tokens: Number, c: StepCoefficients) -> Number:
    """Share of the routed experts that at least one token of the step is routed to [1]; scheduled_tokens : at least 1 [token].

    The first token hits k of E experts. With uniform routing each further one misses an expert with chance 1 - k/E, so that the
    share is 1 - (1 - k/E)^tokens; real routers repeat themselves, which expert_spread below 1 expresses.
    """
    return 1.0 - c.expert_miss_ratio ** (1.0 + c.expert_spread * (scheduled_tokens - 1.0))


def weights_s(scheduled_tokens: Number, c: StepCoefficients) -> Number:
    """Time to stream the weights of the linear layers that a step of scheduled_tokens needs [s]."""
    return c.dense_weights_s + c.expert_weights_s * experts_hit(scheduled_tokens, c)


def linear_s(scheduled_tokens: Number, c: StepCoefficients) -> Number:
    """Time of the linear layers of a step [s]: weights streamed once, FLOPs for every scheduled token.

    scheduled_tokens : tokens computed in the step, at least 1 [token]
    """
    return smooth_max(weights_s(scheduled_tokens, c), c.linear_s_per_token * scheduled_tokens, c.inverse_p)


def head_s(sampled_tokens: Number, c: StepCoefficients) -> Number:
    """Time of the language-model head of a step [s]; sampled_tokens : rows that get logits [token]."""
    return smooth_max(c.head_weights_s, c.head_s_per_token * sampled_tokens, c.inverse_p) * np.minimum(sampled_tokens, 1.0)


def decode_attention_s(shape: StepShape, c: StepCoefficients) -> Number:
    """Time to read the decode sequences' keys, values and recurrent states [s]."""
    read_s = (
        c.decode_s_per_context_token * shape.decode_context_tokens
        + c.decode_s_per_window_token * shape.decode_window_tokens
        + c.decode_s_per_sequence * shape.decode_sequences
    )
    prefill_tokens = shape.scheduled_tokens - shape.decode_sequences
    return read_s * (1.0 + (c.mix_factor - 1.0) * np.minimum(prefill_tokens, 1.0))


def prefill_attention_s(shape: StepShape, c: StepCoefficients) -> Number:
    """Time of the prefill chunks' causal attention [s].

    A chunk multiplies its queries with every key before them and reads those that are cached; the reading rules only for short
    chunks on a long context (below about 70 tokens for eight KV heads of 32 on an H100).
    """
    read_s = c.decode_s_per_context_token * shape.prefill_context_tokens
    multiply_s = c.prefill_s_per_pair * shape.prefill_pairs + c.prefill_s_per_window_pair * shape.prefill_window_pairs
    return smooth_max(multiply_s, read_s, c.inverse_p)


def host_s(sequences: Number, c: StepCoefficients) -> Number:
    """CPU time of a step that can overlap the GPU: scheduling, input preparation, sampling [s]; sequences : in the batch [seq]."""
    return c.host_s + c.host_s_per_sequence * sequences


def exposed_host_s(sequences: Number, c: StepCoefficients) -> Number:
    """CPU time that adds to a step whatever else goes on: output handling and streaming [s]; sequences : in the batch [seq]."""
    return c.exposed_host_s_per_sequence * sequences


def gpu_s(shape: StepShape, c: StepCoefficients) -> Number:
    """Time that the GPU works on a step [s]; see the module's formula."""
    return (
        c.layers_s
        + linear_s(shape.scheduled_tokens, c)
        + head_s(shape.sampled_tokens, c)
        + decode_attention_s(shape, c)
        + prefill_attention_s(shape, c)
        + (c.activation_s_per_token + c.all_reduce_s_per_token) * shape.scheduled_tokens
        + c.all_reduce_s
    )


def step_s(shape: StepShape, c: StepCoefficients) -> Number:
    """Time from one step to the next [s]; the one number that the simulator and the closed forms use."""
    on_gpu_s = gpu_s(shape, c)
    on_host_s = host_s(shape.sequences, c)
    exposed_s = exposed_host_s(shape.sequences, c)
    if c.host_overlap == 1.0:
        return np.maximum(on_gpu_s, on_host_s) + exposed_s
    return on_gpu_s + on_host_s + exposed_s


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step's time with its parts, all in seconds, and what binds it.

    linear_weights_s and linear_compute_s are the two sides that the linear part joins; host_s holds the exposed part too;
    hidden_s is the part of GPU or host time that asynchronous scheduling hides.
    """

    layers_s: float
    linear_s: float
    linear_weights_s: float
    linear_compute_s: float
    head_s: float
    decode_attention_s: float
    prefill_attention_s: float
    activation_s: float
    all_reduce_s: float
    host_s: float
    gpu_s: float
    total_s: float
    hidden_s: float
    binds: Limit

    def parts(self) -> dict[Part, float]:
        """Return the eight parts by name [s]; they sum to total_s + hidden_s."""
        return {
            "layers": self.layers_s,
            "linear": self.linear_s,
            "head": self.head_s,
            "decode_attention": self.decode_attention_s,
            "prefill_attention": self.prefill_attention_s,
            "activation": self.activation_s,
            "all_reduce": self.all_reduce_s,
            "host": self.host_s,
        }


def step_time(shape: StepShape, c: StepCoefficients) -> StepTime:
    """Return the time of one step with its parts; scalars only."""
    tokens = float(shape.scheduled_tokens)
    linear_weights_s = float(weights_s(tokens, c))
    linear_compute_s = c.linear_s_per_token * tokens
    linear = float(linear_s(tokens, c))
    head = float(head_s(shape.sampled_tokens, c))
    decode = float(decode_attention_s(shape, c))
    prefill = float(prefill_attention_s(shape, c))
    activation = c.activation_s_per_token * tokens
    all_reduce = c.all_reduce_s + c.all_reduce_s_per_token * tokens
    overlapping = float(host_s(shape.sequences, c))
    exposed = float(exposed_host_s(shape.sequences, c))
    on_gpu = float(gpu_s(shape, c))
    total = float(step_s(shape, c))
    host_is_longer = overlapping > on_gpu
    memory_bound = linear_weights_s >= linear_compute_s
    by_limit: dict[Limit, float] = {
        "bandwidth": decode + activation + head + (linear if memory_bound else 0.0),
        "compute": prefill + (0.0 if memory_bound else linear),
        "communication": all_reduce,
        "launch overhead": c.layers_s,
        "host": exposed + (overlapping if c.host_overlap == 0.0 or host_is_longer else 0.0),
    }
    binds: Limit = "host" if c.host_overlap == 1.0 and host_is_longer else max(by_limit, key=lambda k: by_limit[k])
    return StepTime(
        layers_s=c.layers_s,
        linear_s=linear,
        linear_weights_s=linear_weights_s,
        linear_compute_s=linear_compute_s,
        head_s=head,
        decode_attention_s=decode,
        prefill_attention_s=prefill,
        activation_s=activation,
        all_reduce_s=all_reduce,
        host_s=overlapping + exposed,
        gpu_s=on_gpu,
        total_s=total,
        hidden_s=on_gpu + overlapping + exposed - total,
        binds=binds,
    )
