"""An engine with round numbers, so that the tests of the questions can be worked out by hand."""

from planner.step_model import StepCoefficients

# A round engine: 4 ms of weights, 20 µs a token, 0.3 ms of head, 40 ns a cached token, 1 ns a pair.
C = StepCoefficients(
    layers_s=0.0,
    dense_weights_s=4e-3,
    expert_weights_s=0.0,
    expert_miss_ratio=1.0,
    linear_s_per_token=20e-6,
    head_weights_s=0.3e-3,
    head_s_per_token=1e-6,
    decode_s_per_context_token=40e-9,
    decode_s_per_window_token=0.0,
    decode_s_per_sequence=0.0,
    prefill_s_per_pair=1e-9,
    prefill_s_per_window_pair=0.0,
    activation_s_per_token=0.0,
    all_reduce_s=0.0,
    all_reduce_s_per_token=0.0,
    host_s=0.0,
    host_s_per_sequence=0.0,
    mix_factor=1.0,
    inverse_p=0.0,
    window_tokens=0.0,
    host_overlap=1.0,
)
