"""The accelerators and nodes that are known: shipped files, and the user's own, which win by id.

A file is parsed again only when it has changed: everything here is cached by path, modification time and size.
"""

import os
import re
import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from planner import paths
from planner.errors import InputError
from planner.hardware.figures import checked_id
from planner.hardware.gpu import GpuProfile
from planner.hardware.inherit import EXTENDS, expanded, merged
from planner.hardware.node import Node
from planner.hardware.reading import Table, close_matches, read_toml_file, toml_table, validated

PROFILES = "hardware_profiles"
NODES = "nodes"
TOML_SUFFIX = ".toml"
MAX_FILES = 1_000
MAX_EXTENDS = 8
_MAKERS = frozenset({"nvidia", "amd", "instinct", "geforce", "tesla", "intel", "google"})


class Stamp(NamedTuple):
    """One version of one file."""

    path: Path
    mtime_ns: int
    size: int


class Survey(NamedTuple):
    """What a folder holds: the profiles that can be used, and what is wrong with each of the others."""

    profiles: tuple[GpuProfile, ...]
    errors: tuple[InputError, ...]


class NodeSurvey(NamedTuple):
    """The nodes that can be used, and what is wrong with each of the others."""

    nodes: tuple[Node, ...]
    errors: tuple[InputError, ...]


Index = Mapping[str, tuple[Stamp, ...]]


def load_gpu(gpu_id: str, field: str = "gpu_id") -> GpuProfile:
    """Return one accelerator by id.

    gpu_id : such as "h100-80g-sxm"; a file of that name in the user's folder wins over a shipped one
    field : where the id was given, for messages

    Raises InputError listing near ids when it is unknown, or naming the fault of its file.
    """
    return _gpu(_chain(gpu_id, gpu_index(), field))


def list_gpus() -> tuple[GpuProfile, ...]:
    """Return all accelerators, sorted by id. Raises InputError on the first file with a fault; `survey_gpus` goes on."""
    index = gpu_index()
    return tuple(_listed_gpu(gpu_id, index) for gpu_id in sorted(index))


def survey_gpus() -> Survey:
    """Return all accelerators that can be used and the fault of each file that can't, so that one bad file hides no other."""
    profiles: list[GpuProfile] = []
    errors: list[InputError] = []
    index = gpu_index()
    for gpu_id in sorted(index):
        try:
            profiles.append(_listed_gpu(gpu_id, index))
        except InputError as error:
            errors.append(error)
    return Survey(tuple(profiles), tuple(errors))


def gpu_from_toml(text: str, name: str = "the TOML text") -> GpuProfile:
    """Return the accelerator that a user's TOML text describes; `extends` may name any known one.

    A plan knows it once the text lies in PLANNER_HOME/hardware_profiles/<its id>.toml.

    text : the document, at most 64 KiB
    name : label for messages, such as the uploaded file's name; never opened

    Raises InputError naming field, value, bound and remedy.
    """
    return validated(GpuProfile, _complete(toml_table(text, name), name), name)


def gpu_index() -> Index:
    """Return the files of each accelerator by id, the user's before the shipped one; nothing is opened."""
    return _index()


def load_node(node_id: str) -> Node:
    """Return one node (what one rents or buys) by id, such as "aws-p5.48xlarge".

    Raises InputError listing near ids when it is unknown, or naming the fault of its file.
    """
    index = _index(NODES)
    if checked_id("node_id", node_id) not in index:
        raise InputError("node_id", node_id, "is not a known node", f"Known near it: {close_matches(node_id, index)}")
    return _checked_node(index[node_id][0], gpu_index())


def list_nodes() -> tuple[Node, ...]:
    """Return all nodes, sorted by id."""
    index, gpus = _index(NODES), gpu_index()
    for node_id in index:
        checked_id(f"{node_id}{TOML_SUFFIX}", node_id)
    return tuple(_checked_node(index[node_id][0], gpus) for node_id in sorted(index))


def survey_nodes() -> NodeSurvey:
    """Return all nodes that can be used and the fault of each file that can't, so that one bad file hides no other."""
    nodes: list[Node] = []
    errors: list[InputError] = []
    index, gpus = _index(NODES), gpu_index()
    for node_id in sorted(index):
        try:
            checked_id(f"{node_id}{TOML_SUFFIX}", node_id)
            nodes.append(_checked_node(index[node_id][0], gpus))
        except InputError as error:
            errors.append(error)
    return NodeSurvey(tuple(nodes), tuple(errors))


def nodes_for(gpu_id: str) -> tuple[Node, ...]:
    """Return the nodes that hold one kind of accelerator, the smallest first.

    gpu_id : a known id; raises InputError otherwise
    """
    _chain(gpu_id, gpu_index())
    return tuple(sorted((node for node in list_nodes() if node.gpu_id == gpu_id), key=lambda node: (node.gpu_count, node.id)))


def profile_folders(*below: str) -> tuple[Path, ...]:
    """Return the folders that hold profiles, the user's first; `below` is the way down from hardware_profiles/."""
    home = paths.user_home()
    shipped = paths.PROFILES_DIR.joinpath(*below)
    return (home.joinpath(PROFILES, *below), shipped) if home is not None else (shipped,)


def stamps(folder: Path, suffix: str) -> tuple[Stamp, ...]:
    """Return the files of a folder with this suffix, sorted by name; none when the folder doesn't exist."""
    if not folder.is_dir():
        return ()
    with os.scandir(folder) as entries:
        states = [(entry.path, paths.entry_state(entry)) for entry in entries if entry.name.endswith(suffix)]
    found = [
        Stamp(_path(path), state.st_mtime_ns, state.st_size)
        for path, state in sorted(states, key=lambda entry: entry[0])
        if state and stat.S_ISREG(state.st_mode)
    ]
    if len(found) > MAX_FILES:
        raise InputError(str(folder), len(found), f"must hold at most {MAX_FILES:,} files", "Move those out that aren't profiles")
    return tuple(found)


@lru_cache(maxsize=8 * MAX_FILES)
def _path(text: str) -> Path:
    return Path(text)


def _index(*below: str) -> dict[str, tuple[Stamp, ...]]:
    """Return files by stem. One whose name can't be an id stays in: listing names it, and loading another doesn't stumble."""
    index: dict[str, tuple[Stamp, ...]] = {}
    for folder in profile_folders(*below):
        for stamp in stamps(folder, TOML_SUFFIX):
            stem = stamp.path.name.removesuffix(TOML_SUFFIX)
            index[stem] = (*index.get(stem, ()), stamp)
    return index


@lru_cache(maxsize=2 * MAX_FILES)
def _table(stamp: Stamp) -> Table:
    return read_toml_file(stamp.path)


def _chain(gpu_id: str, index: Index, field: str = "gpu_id") -> tuple[Stamp, ...]:
    """Return the files from this accelerator to the one that stands alone; `field` is where the id was given.

    A user's file may extend the shipped one of the same id. Raises InputError on an unknown id and on a cycle.
    """
    chain: list[Stamp] = []
    wanted = gpu_id
    while True:
        known = index.get(wanted) if isinstance(wanted, str) else None
        if known is None:
            raise InputError(field, wanted, "is not a known accelerator", f"Known near it: {_near(wanted, index)}")
        checked_id(field, wanted)
        unused = [stamp for stamp in known if stamp not in chain]
        if not unused or len(chain) == MAX_EXTENDS:
            remedy = "End the chain in a profile without extends"
            raise InputError(field, wanted, f"must not extend in a circle, nor over {MAX_EXTENDS} files", remedy)
        chain.append(unused[0])
        table = _table(unused[0])
        if EXTENDS not in table:
            return tuple(chain)
        field, wanted = f"{unused[0].path.name}: {EXTENDS}", table[EXTENDS]


def _near(wanted: object, index: Index) -> str:
    """Return the ids near to what was asked for; words as a driver or a price list writes them ("NVIDIA H100 80GB") count too."""
    words = re.findall(r"[a-z0-9.]+", str(wanted)[:64].lower())
    return close_matches("-".join(word for word in words if word not in _MAKERS), index)


@lru_cache(maxsize=2 * MAX_FILES)
def _complete_file(chain: tuple[Stamp, ...]) -> dict[str, Any]:
    table = _table(chain[0])
    if len(chain) == 1:
        return expanded(table)
    _gpu(chain[1:])
    return merged(_complete_file(chain[1:]), table, chain[0].path.name)


def _complete(table: Table, where: str) -> Table:
    if EXTENDS not in table:
        return expanded(table)
    chain = _chain(table[EXTENDS], gpu_index(), f"{where}: {EXTENDS}")
    _gpu(chain)
    return merged(_complete_file(chain), table, where)


@lru_cache(maxsize=2 * MAX_FILES)
def _gpu(chain: tuple[Stamp, ...]) -> GpuProfile:
    path = chain[0].path
    profile = validated(GpuProfile, _complete_file(chain), path.name)
    _check_stem(path, profile.id)
    return profile


@lru_cache(maxsize=2 * MAX_FILES)
def _node(stamp: Stamp) -> Node:
    node = validated(Node, _table(stamp), stamp.path.name)
    _check_stem(stamp.path, node.id)
    return node


def _checked_node(stamp: Stamp, gpus: Index) -> Node:
    node, where = _node(stamp), stamp.path.name
    _check_node_gpu(node, _gpu(_chain(node.gpu_id, gpus, f"{where}: gpu_id")), where)
    return node


def _listed_gpu(gpu_id: str, index: Index) -> GpuProfile:
    return _gpu(_chain(gpu_id, index, f"{gpu_id}{TOML_SUFFIX}"))


def _check_stem(path: Path, own_id: str) -> None:
    stem = path.name.removesuffix(TOML_SUFFIX)
    if own_id != stem:
        raise InputError(f"{path.name}: id", own_id, f"must equal the file's name, {stem}", "Rename the file or the id")


def _check_node_gpu(node: Node, gpu: GpuProfile, where: str) -> None:
    most = gpu.link.domain_gpus if gpu.link is not None else 1
    if node.link_domain_gpus > most:
        raise InputError(
            f"{where}: link_domain_gpus",
            node.link_domain_gpus,
            f"must be at most {most}, what the link of {gpu.name} can join",
            "Give the GPUs that the fast link joins, 1 for PCIe alone",
        )
