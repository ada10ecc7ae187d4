"""`extends`: a profile as another one with some figures overridden, and the sources that follow from it.

An overridden figure never keeps the source of the figure it replaces: it takes the child's own source, or is marked assumed.
"""

import copy
from typing import Any

from planner.errors import InputError
from planner.hardware.gpu import DEFAULT_SOURCE, figure_names
from planner.hardware.reading import Table, close_matches

EXTENDS = "extends"
REMOVE = "remove"
_INHERITED_BY_SOURCES = ("kind", "ref", "retrieved", "confidence")


def expanded(table: Table) -> dict[str, Any]:
    """Return a profile that stands alone, with each entry of `sources` completed from "*".

    table : parsed file without `extends`

    An entry may give only what differs, such as `{ agreeing = 3 }`; it takes the rest from its table's entry when there is one
    ("link" for "link.kind"), else from "*". Notes and counts are never taken. What is no table is left for the model to refuse.
    """
    result = {**table}
    sources = result.get("sources")
    if isinstance(sources, dict):
        result["sources"] = _all_completed(sources, sources.get(DEFAULT_SOURCE))
    return result


def merged(parent: Table, child: Table, where: str) -> dict[str, Any]:
    """Return `parent` with the figures of `child` in their place.

    parent : complete table of the profile that `child` extends
    child : parsed file with `extends`
    where : file name of the child, for messages

    `remove` lists figures that the child lacks (a MIG slice has no `link`). Overriding a figure in a table such as
    `dense_flops_per_s` leaves the table's other figures alone.
    """
    result: dict[str, Any] = copy.deepcopy({**parent})
    removed = _names_to_remove(child, where)
    for name in removed:
        _remove(result, name, where)
    changed: set[str] = set()
    for key, value in child.items():
        if key in (EXTENDS, REMOVE, "sources"):
            continue
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key].update(value)
            changed |= {f"{key}.{inner}" for inner in value}
        else:
            result[key] = value
            changed.add(key)
    _merge_sources(result["sources"], child, changed & figure_names(), where)
    return result


def _all_completed(own: Table, base: object) -> dict[str, Any]:
    tables = {name: _completed(entry, base) for name, entry in own.items() if "." not in name and name != DEFAULT_SOURCE}
    dotted = {name: _completed(entry, tables.get(name.partition(".")[0], base)) for name, entry in own.items() if "." in name}
    return {**own, **tables, **dotted}


def _completed(entry: object, base: object) -> object:
    if not isinstance(entry, dict) or not isinstance(base, dict):
        return entry
    return {**{key: base[key] for key in _INHERITED_BY_SOURCES if key in base}, **entry}


def _names_to_remove(child: Table, where: str) -> list[str]:
    names = child.get(REMOVE, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}: {REMOVE}", names, "must be a list of names of figures", 'Write it like remove = ["link"]')
    return names


def _remove(result: dict[str, Any], name: str, where: str) -> None:
    table, _, key = name.partition(".")
    holder = result.get(table) if key else result
    if not isinstance(holder, dict) or (key or table) not in holder:
        remedy = f"Known near it: {close_matches(name, result)}"
        raise InputError(f"{where}: {REMOVE}", name, "is not in the profile that is extended", remedy)
    del holder[key or table]
    sources = result["sources"]
    for stale in [source for source in sources if source == name or source.startswith(f"{name}.")]:
        del sources[stale]


def _merge_sources(sources: dict[str, Any], child: Table, changed: set[str], where: str) -> None:
    own = child.get("sources", {})
    if not isinstance(own, dict):
        raise InputError(f"{where}: sources", own, "must be a table", 'Write it like [sources."*"]')
    assumed = {"kind": "assumed", "ref": f"set in {where} over {child[EXTENDS]}", "confidence": "low"}
    base = own.get(DEFAULT_SOURCE, assumed)
    sources.update(dict.fromkeys(changed, base))
    sources.update({name: entry for name, entry in _all_completed(own, base).items() if name != DEFAULT_SOURCE})
