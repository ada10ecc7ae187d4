"""The largest misses with their reasons, as far as these are known: data beside the figures that ship."""

import fnmatch
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from planner.accuracy.shipped import FOLDER, GroupPart, Metric, ShippedAccuracy

MISSES_FILE = FOLDER / "misses.json"


class Miss(BaseModel):
    """Why predictions of some groups of a source lie off; gpu, model : patterns of ids."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    gpu: str
    engine: str
    model: str
    metric: Metric = Field(description="the one that shows it")
    explained: bool = Field(description="whether the reason is known rather than the miss described")
    reason: str = Field(min_length=1, max_length=600)

    def groups(self, source: ShippedAccuracy) -> tuple[GroupPart, ...]:
        """Return the groups of a source that the miss is about and that state its metric."""
        if source.id != self.source:
            return ()
        return tuple(group for group in source.shipped.groups if self.metric in group.errors and self._fits(group))

    def _fits(self, group: GroupPart) -> bool:
        pairs = ((group.gpu, self.gpu), (group.engine, self.engine), (group.model, self.model))
        return all(fnmatch.fnmatchcase(text, pattern) for text, pattern in pairs)


@lru_cache(maxsize=1)
def misses() -> tuple[Miss, ...]:
    """Return the known misses of all sources."""
    return TypeAdapter(tuple[Miss, ...]).validate_json(MISSES_FILE.read_bytes())


def misses_of(source: ShippedAccuracy) -> tuple[tuple[Miss, tuple[GroupPart, ...]], ...]:
    """Return the known misses of a source with their groups, the largest median error first."""
    found = [(miss, groups) for miss in misses() if (groups := miss.groups(source))]
    return tuple(sorted(found, key=lambda pair: -max(group.errors[pair[0].metric].median_abs_pct for group in pair[1])))
