"""The flags of the shell's `calibrate`, apart from its work so that other verbs answer at once."""

import argparse
from pathlib import Path


def add_arguments(verb: argparse.ArgumentParser) -> None:
    """Add the flags of `calibrate` to its parser."""
    files = "what a collector wrote, an engine's log with single steps, or a benchmark's result: recognised by content"
    verb.add_argument("files", type=Path, nargs="+", metavar="FILE", help=files)
    verb.add_argument("--gpu", required=True, metavar="ID", help="GPU that was measured")
    verb.add_argument("--model", metavar="ID", help="model that was served; the collectors' own files name theirs")
    verb.add_argument("--quantization", metavar="ID", help="weights, for example bf16 or fp8 (default: the file's, else bf16)")
    verb.add_argument("--kv-dtype", metavar="DTYPE", help="bf16 or fp8 (default: the file's, else the quantization's)")
    verb.add_argument("--tp", type=int, metavar="N", help="GPUs that share a layer (default: the file's, else 1)")
    verb.add_argument("--engine", default=None, choices=["vllm", "sglang", "tensorrt-llm"], help="default: the file's, else vllm")
    verb.add_argument("--engine-version", metavar="V", help="release (default: the file's, else the newest known)")
    verb.add_argument("--max-num-seqs", type=int, metavar="N", help="the server's setting (default: the file's, else the engine's)")
    verb.add_argument(
        "--max-num-batched-tokens", type=int, metavar="N", help="the server's setting (default: the file's, else the engine's)"
    )
    verb.add_argument("--max-model-len", type=int, metavar="N", help="the server's setting (default: the file's, else the model's)")
    verb.add_argument("--kv-cache-tokens", type=int, metavar="N", help="GPU KV cache size as the engine logged it")
    verb.add_argument("--async-scheduling", action=argparse.BooleanOptionalAction, help="the server's setting")
    verb.add_argument("--eager", action="store_true", help="the server ran without CUDA graphs")
    verb.add_argument("--replicas", type=int, default=1, metavar="N", help="engines that shared the benchmark's load (default 1)")
    verb.add_argument("--no-hold-out", action="store_true", help="don't predict each run from the others")
    verb.add_argument("--save", metavar="NAME", help="keep the record in PLANNER_HOME under this name")
    verb.add_argument("--replace", action="store_true", help="with --save: replace an own record of this name")
    verb.add_argument("--json", action="store_true", help="print JSON")
