"""Requests that a question changes: lengths that no workload may hold are refused with what can be asked."""

from dataclasses import replace

import numpy as np
import pytest

from planner.analysis.served import stretch_prompts
from planner.cases import textbook_case
from planner.errors import InputError
from planner.workloads.laws import MAX_TOKENS


def test_a_mean_whose_longest_prompt_no_workload_may_hold_is_refused_with_the_largest_mean() -> None:
    drawn = textbook_case().requests(50)
    uneven = replace(drawn, prompt_tokens=np.where(np.arange(50) == 0, 5000, 500).astype(np.int64))
    mean = float(uneven.prompt_tokens.mean())
    with pytest.raises(InputError) as fault:
        stretch_prompts(uneven, 1e6 / mean)
    assert (fault.value.field, fault.value.value) == ("prompt_tokens", 1_000_000)
    most = mean * MAX_TOKENS / 5000.0
    assert f"at most {most:,.0f} on average" in fault.value.bound
    assert stretch_prompts(uneven, 0.999 * most / mean).prompt_tokens.max() <= MAX_TOKENS
