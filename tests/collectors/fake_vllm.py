"""A tiny stand-in for vLLM: one request after the other is admitted, prompts are chunked, and each step takes a known time."""

import importlib
import logging
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

STEP_S = 0.001
BUDGET = 64


class Request:
    def __init__(self, name: str, prompt: int, output: int) -> None:
        self.name, self.num_prompt_tokens, self.max_tokens = name, prompt, output
        self.num_computed_tokens = 0
        self.generated = 0

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.generated


class Scheduler:
    """Decodes first, then prompts in order within the budget, as vLLM does."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.kv_cache_manager = SimpleNamespace(block_pool=SimpleNamespace(get_num_free_blocks=lambda: 7))

    def schedule(self, throttle_prefills: bool = False) -> Any:  # noqa: ARG002 - as vLLM calls it
        left, tokens, new, cached = BUDGET, {}, [], []
        for request in self.requests.values():
            count = min(left, max(request.num_tokens - request.num_computed_tokens, 0))
            if count:
                tokens[request.name] = count
                left -= count
                (cached if request.num_computed_tokens else new).append((request.name, request.num_computed_tokens))
                request.num_computed_tokens += count
        return SimpleNamespace(
            num_scheduled_tokens=tokens,
            total_num_scheduled_tokens=sum(tokens.values()),
            scheduled_new_reqs=[SimpleNamespace(req_id=name, num_computed_tokens=before) for name, before in new],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[name for name, _ in cached], num_computed_tokens=[before for _, before in cached]
            ),
            scheduled_spec_decode_tokens={},
        )

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> None:  # noqa: ARG002
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests[name]
            if request.num_computed_tokens >= request.num_tokens:
                request.generated += 1
                if request.generated >= request.max_tokens:
                    del self.requests[name]


class Engine:
    def __init__(self, scheduler: Any, asynchronous: bool) -> None:
        self.scheduler = scheduler
        self.vllm_config = SimpleNamespace(
            scheduler_config=SimpleNamespace(max_num_seqs=8, max_num_batched_tokens=BUDGET, async_scheduling=asynchronous),
            cache_config=SimpleNamespace(
                block_size=16, num_gpu_blocks=1000, gpu_memory_utilization=0.9, cache_dtype="auto", enable_prefix_caching=False
            ),
            model_config=SimpleNamespace(
                max_model_len=512, enforce_eager=True, quantization=None, dtype="torch.float32", get_vocab_size=lambda: 1000
            ),
            parallel_config=SimpleNamespace(tensor_parallel_size=1),
        )

    def add_request(self, name: str, prompt: dict[str, list[int]], parameters: Any) -> None:
        self.scheduler.requests[name] = Request(name, len(prompt["prompt_token_ids"]), parameters.max_tokens)

    def has_unfinished_requests(self) -> bool:
        return bool(self.scheduler.requests)

    def step(self) -> None:
        output = self.scheduler.schedule(throttle_prefills=False)
        time.sleep(STEP_S)
        self.scheduler.update_from_output(output, None)


def install(monkeypatch: pytest.MonkeyPatch, started: list[dict[str, Any]]) -> None:
    """Put the stand-in where `import vllm` and `import torch` find it; started : gets the arguments of each engine."""

    class LLM:
        def __init__(self, **arguments: Any) -> None:
            started.append(arguments)
            if "unknown_to_old_releases" in arguments:
                raise TypeError("unexpected keyword argument 'unknown_to_old_releases'")
            logging.getLogger("vllm.worker").warning("GPU KV cache size: 16,000 tokens")
            module, _, name = arguments["scheduler_cls"].rpartition(".")
            scheduler = getattr(importlib.import_module(module), name)()
            self.llm_engine = Engine(scheduler, arguments["async_scheduling"] and "cpu" not in started[0])

    class AsyncScheduler(Scheduler):
        pass

    modules = {
        "vllm": {"LLM": LLM, "SamplingParams": SimpleNamespace, "__version__": "0.33.0"},
        "vllm.v1": {},
        "vllm.v1.core": {},
        "vllm.v1.core.sched": {},
        "vllm.v1.core.sched.scheduler": {"Scheduler": Scheduler},
        "vllm.v1.core.sched.async_scheduler": {"AsyncScheduler": AsyncScheduler},
        "torch": {"cuda": SimpleNamespace(is_available=lambda: False)},
    }
    for name, values in modules.items():
        module = ModuleType(name)
        module.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, module)
