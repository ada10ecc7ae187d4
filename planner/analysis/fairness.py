"""What a token of each kind costs, and who gets the engine when requests or tokens are counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.analysis.explanation import Explanation
from planner.analysis.steps import Decoders, prefill_s, require_tokens
from planner.errors import InputError
from planner.step_model import StepCoefficients
from planner.token_costs import token_costs_s
from planner.units import percentage, plural


class Request(NamedTuple):
    """One tenant's typical request: prompt and output [token]."""

    prompt_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """GPU time of one token.

    prefill_token_s : a prompt token beside others, its attention apart [s]
    decode_token_s : an output token, its share of a decode step [s]
    weight : decode ÷ prefill, what a token-counting scheduler should charge for an output token [1]
    """

    prefill_token_s: float
    decode_token_s: float
    weight: float
    explanation: Explanation


def token_weights(decoders: Decoders, c: StepCoefficients) -> TokenWeights:
    """Return the cost of a prompt token and of an output token; decoders : a typical batch, at least 1 sequence."""
    if decoders.sequences < 1.0:
        raise InputError("decoders.sequences", decoders.sequences, "must be at least 1", "Give the typical batch")
    prefill, decode = token_costs_s(c, decoders.sequences, decoders.context_tokens, prompt_tokens=0.0)
    return TokenWeights(
        prefill,
        decode,
        decode / prefill,
        Explanation(
            f"An output token costs {decode / prefill:.2f} prompt tokens.",
            f"output token: step of {decode * decoders.sequences * 1e3:.3f} ms / {decoders.sequences:g} sequences at "
            f"{decoders.context_tokens:,.0f} tokens = {decode * 1e6:.1f} µs; prompt token: {prefill * 1e6:.2f} µs",
            f"Charge 1 for a prompt token and {decode / prefill:.1f} for an output token in the virtual token counter or quota.",
        ),
    )


@dataclass(frozen=True, slots=True)
class ServiceShares:
    """Share of the engine's time that each tenant takes when each gets as many requests served.

    linear : with each token at its weight; full : with each prompt's attention and head counted too [1]
    """

    linear: tuple[float, ...]
    full: tuple[float, ...]
    jain_index: float
    explanation: Explanation


def request_fair_shares(requests: Sequence[Request], decoders: Decoders, c: StepCoefficients) -> ServiceShares:
    """Return what request-fair scheduling gives each tenant.

    requests : one typical request per tenant; decoders : the batch that output tokens decode in
    """
    if not requests:
        raise InputError("requests", requests, "must hold at least one tenant", "Give each tenant's typical request")
    weights = token_weights(decoders, c)
    linear, full = [], []
    for request in requests:
        require_tokens("prompt_tokens", request.prompt_tokens)
        require_tokens("output_tokens", request.output_tokens, least=0.0)
        decode_s = request.output_tokens * weights.decode_token_s
        linear.append(request.prompt_tokens * weights.prefill_token_s + decode_s)
        full.append(prefill_s(request.prompt_tokens, c) + decode_s)
    shares = tuple(value / sum(linear) for value in linear)
    heaviest = max(range(len(shares)), key=lambda index: shares[index])
    return ServiceShares(
        shares,
        tuple(value / sum(full) for value in full),
        jain_index(linear),
        Explanation(
            f"Counting requests gives the tenant with prompts of {plural(requests[heaviest].prompt_tokens, 'token')} "
            f"{percentage(shares[heaviest], 1)} of the engine.",
            "; ".join(_cost(request, weights, value) for request, value in zip(requests, linear, strict=True))
            + f"; {linear[heaviest] * 1e3:.1f} of {sum(linear) * 1e3:.1f} ms = {percentage(shares[heaviest], 1)}",
            "Schedule by a virtual token counter with these weights, lifted when a tenant returns so that idle time banks no "
            "credit; "
            "enforce it in the gateway where the engine has no tenants.",
        ),
    )


def _cost(request: Request, weights: TokenWeights, linear_s: float) -> str:
    return (
        f"{request.prompt_tokens:,.0f} × {weights.prefill_token_s * 1e6:.2f} µs + {request.output_tokens:,.0f} × "
        f"{weights.decode_token_s * 1e6:.1f} µs = {linear_s * 1e3:.1f} ms"
    )


def jain_index(service: Sequence[float]) -> float:
    """Return Jain's fairness index of services that should be equal: (Σx)² / (n·Σx²), from 1/n to 1 [1].

    Jain, Chiu, Hawe (1984), A Quantitative Measure of Fairness, DEC-TR-301.

    >>> jain_index([1.0, 1.0]), jain_index([1.0, 0.0])
    (1.0, 0.5)
    """
    squares = sum(value * value for value in service)
    if not service or squares <= 0.0 or min(service) < 0.0:
        raise InputError("service", service, "must hold services of at least 0, one above 0", "Give each tenant's service")
    return sum(service) ** 2 / (len(service) * squares)
