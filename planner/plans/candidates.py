"""Which GPUs, layouts and machines a scenario may use, and what a deployment of it looks like."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from planner.deployment import Deployment, Link, Parallelism
from planner.engines import EngineConfig, Usage, engine_defaults
from planner.errors import InputError
from planner.fleet import Placement, place
from planner.hardware import GpuProfile, Price, list_prices, load_gpu, nodes_for, survey_gpus
from planner.hardware.catalogue import gpu_index
from planner.hardware.reading import close_matches
from planner.models import QUANTIZATIONS, ModelSpec, Quantization, tp_refusal
from planner.plans.machines import by_link, machines_by_name
from planner.pricing import Tariff, fleet_usd_per_hour
from planner.scenario import EngineChoice, HardwareChoice, Scenario

TENSOR_PARALLEL_SIZES = (1, 2, 4, 8, 16)
COMPARED_VENDORS = ("NVIDIA", "AMD")
_LARGEST_UNPRICED_MACHINE = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """A GPU and a tensor-parallel size, with the machines that hold it.

    refusal : why the model can't be split so
    link : what a replica's all-reduces travel over on these machines; None for one GPU
    several_links : other machines join the same GPUs by another link, which is a layout of its own
    """

    gpu: GpuProfile
    tensor_parallel: int
    tariffs: tuple[Tariff, ...]
    refusal: str | None
    link: Link | None = None
    several_links: bool = False


def layouts(scenario: Scenario, model: ModelSpec, quantization: Quantization) -> tuple[Layout, ...]:
    """Return every GPU × TP size × link that the scenario allows, in the order of the catalogue.

    Without named GPUs: every NVIDIA and AMD GPU with a price that matches the scenario's provider, region and price basis (other
    makers' chips need engine builds of their own: name one to plan on it). TP sizes: those that a machine with a matching price
    holds, up to 8 where no price is known.
    """
    choice = scenario.hardware
    _check_market(choice)
    prices, machines = prices_by_gpu(choice), machines_by_name()
    found: list[Layout] = []
    for gpu in _gpus(choice):
        tariffs = tariffs_for(gpu.id, choice, prices.get(gpu.id, ()))
        if not tariffs and not choice.gpu_ids:
            continue
        sizes = tuple(dict.fromkeys(choice.tensor_parallel)) or _sizes(tariffs)
        for size in sizes:
            refusal, groups = tp_refusal(model, size, quantization), by_link(gpu, size, tariffs, machines)
            found.extend(Layout(gpu, size, members, refusal, link, len(groups) > 1) for link, members in groups)
    if not found:
        raise InputError(
            "hardware",
            choice.provider or choice.region or choice.price_basis,
            "matches no GPU with a known price",
            "Choose another provider, region or price basis, or give hardware.usd_per_gpu_hour",
        )
    return tuple(found)


def _check_market(choice: HardwareChoice) -> None:
    """Raise InputError when a price, a provider or a region of the scenario belongs to nothing that is known."""
    gpus = gpu_index() if choice.usd_per_gpu_hour else {}
    for gpu_id, usd_per_hour in choice.usd_per_gpu_hour.items():
        if gpu_id not in gpus:
            bound = f"is the price of no known accelerator; known near it: {close_matches(gpu_id, gpus)}"
            raise InputError(f"hardware.usd_per_gpu_hour.{gpu_id}", usd_per_hour, bound, "Correct the id")
    for field in ("provider", "region"):
        wanted = getattr(choice, field)
        known = set() if wanted is None else {getattr(price, field) for price in list_prices()}
        if wanted is not None and wanted not in known:
            bound, remedy = f"has no price; known near it: {close_matches(wanted, known)}", f"Choose a known {field} or none"
            raise InputError(f"hardware.{field}", wanted, bound, remedy)


def prices_by_gpu(choice: HardwareChoice) -> dict[str, tuple[Price, ...]]:
    """Return the catalogue's prices that match the scenario's provider and region, by GPU id."""
    found: dict[str, list[Price]] = {}
    for price in list_prices():
        if choice.provider in (None, price.provider) and choice.region in (None, price.region):
            found.setdefault(price.gpu_id, []).append(price)
    return {gpu_id: tuple(prices) for gpu_id, prices in found.items()}


def tariffs_for(gpu_id: str, choice: HardwareChoice, prices: tuple[Price, ...]) -> tuple[Tariff, ...]:
    """Return the machines with a GPU that the scenario may rent; the user's own price replaces the catalogue's."""
    own = choice.usd_per_gpu_hour.get(gpu_id)
    if own is not None:
        sizes = sorted({node.gpu_count for node in nodes_for(gpu_id)} | {1, _LARGEST_UNPRICED_MACHINE})
        return tuple(
            Tariff("your price", f"{size} GPU", "yours", size, own * size, "per GPU-hour", "given by you", None) for size in sizes
        )
    tariffs = [_tariff(price, choice) for price in prices]
    return tuple(tariff for tariff in tariffs if tariff is not None)


def cheapest_placement(layout: Layout, replicas: int) -> tuple[Tariff, Placement] | None:
    """Return the machines that hold the replicas for the least money an hour; None when no machine holds one replica."""
    options = (
        (tariff, placement)
        for tariff in layout.tariffs
        if (placement := place(replicas, layout.tensor_parallel, tariff.gpus_per_instance)) is not None
    )
    return min(options, key=lambda option: _dearness(*option), default=None)


def quantization_for(scenario: Scenario, model: ModelSpec) -> Quantization:
    """Return the scenario's quantization; "native" is what the model's checkpoint is stored in."""
    wanted = scenario.model.quantization
    if wanted == "native":
        return model.native_quantization or QUANTIZATIONS["bf16"]
    if wanted not in QUANTIZATIONS:
        raise InputError(
            "model.quantization", wanted, f"must be native or one of {', '.join(QUANTIZATIONS)}", "Choose one of these"
        )
    return QUANTIZATIONS[wanted]


def kv_dtype_for(scenario: Scenario, quantization: Quantization) -> str:
    """Return how keys and values are stored: the scenario's choice, or what the quantization brings."""
    return quantization.kv_dtype if scenario.model.kv_dtype == "auto" else scenario.model.kv_dtype


def engine_for(scenario: Scenario, layout: Layout, max_model_len: int) -> EngineConfig:
    """Return the engine's own settings on this GPU, with what the user holds fixed and a context that the workload needs."""
    usage: Usage = "offline" if scenario.targets.offline else "server"
    return _engine_of(scenario.engine, layout.gpu, layout.tensor_parallel, usage, max_model_len)


@lru_cache(maxsize=1024)
def _engine_of(choice: EngineChoice, gpu: GpuProfile, tensor_parallel: int, usage: Usage, max_model_len: int) -> EngineConfig:
    config = engine_defaults(choice.engine, choice.version, gpu, tensor_parallel, usage=usage)
    held = {name: value for name in ("gpu_memory_utilization", "block_size") if (value := getattr(choice, name)) is not None}
    return config.replace(max_model_len=max_model_len, **held)


def check_context(scenario: Scenario, model: ModelSpec) -> None:
    """Raise InputError when the user's max_model_len is beyond what the model was trained for; the engine refuses it."""
    asked, most = scenario.engine.max_model_len, model.max_positions
    if asked is not None and most is not None and asked > most:
        raise InputError("engine.max_model_len", asked, f"must be at most {most}, the longest context of {model.name}", "Lower it")


def context_for(scenario: Scenario, model: ModelSpec, longest_tokens: int) -> int:
    """Return the max_model_len to serve with [token]: the user's, else the next power of two that holds the longest request.

    longest_tokens : longest prompt with its output in the workload's sample [token]

    The model's own maximum bounds it. A context no longer than needed lets the engine start on small caches and reserves
    nothing for requests that never come.
    """
    if scenario.engine.max_model_len is not None:
        return scenario.engine.max_model_len
    needed = 1 << (longest_tokens - 1).bit_length()
    return needed if model.max_positions is None else min(needed, model.max_positions)


def deployment_for(scenario: Scenario, layout: Layout, model: ModelSpec, longest_tokens: int) -> Deployment:
    """Return the deployment of a layout under the engine's own settings; InputError when its parts don't fit together."""
    quantization = quantization_for(scenario, model)
    return Deployment(
        gpu=layout.gpu,
        model=model,
        quantization=quantization,
        kv_dtype=kv_dtype_for(scenario, quantization),
        parallelism=Parallelism(tp=layout.tensor_parallel),
        engine=engine_for(scenario, layout, context_for(scenario, model, longest_tokens)),
    )


def _gpus(choice: HardwareChoice) -> Iterable[GpuProfile]:
    if choice.gpu_ids:
        return [load_gpu(gpu_id, "hardware.gpu_ids") for gpu_id in dict.fromkeys(choice.gpu_ids)]
    return [gpu for gpu in survey_gpus().profiles if gpu.vendor in COMPARED_VENDORS or gpu.id in choice.usd_per_gpu_hour]


def _sizes(tariffs: tuple[Tariff, ...]) -> tuple[int, ...]:
    largest = max((tariff.gpus_per_instance for tariff in tariffs), default=_LARGEST_UNPRICED_MACHINE)
    return tuple(size for size in TENSOR_PARALLEL_SIZES if size <= largest)


def _tariff(price: Price, choice: HardwareChoice) -> Tariff | None:
    on_demand = choice.price_basis == "on_demand"
    usd_per_hour = price.on_demand_usd_per_hour if on_demand else price.spot_usd_per_hour
    if usd_per_hour is None:
        return None
    return Tariff(
        provider=price.provider,
        instance=price.instance,
        region=price.region,
        gpus_per_instance=price.gpu_count,
        usd_per_instance_hour=usd_per_hour,
        basis="on demand" if on_demand else "spot",
        source=f"{price.source} ({price.licence})",
        as_of=price.as_of,
    )


def _dearness(tariff: Tariff, placement: Placement) -> tuple[float, float, str, str, str]:
    return (fleet_usd_per_hour(tariff, placement), placement.gpus_paid, tariff.provider, tariff.region, tariff.instance)
