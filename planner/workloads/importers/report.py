"""What an import did: nothing is lost without a count."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Rows read, kept and dropped, with the reason of each loss.

    format : name of the format that was recognised
    rows_read, rows_kept : rows_read = rows_kept + sum of dropped
    dropped : rows by reason
    notes : what was changed or guessed (order, units, ticks), in sentences
    """

    format: str
    rows_read: int
    rows_kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rows_read != self.rows_kept + sum(self.dropped.values()):
            raise AssertionError(f"{self.rows_read} rows read, but {self.rows_kept} kept and {dict(self.dropped)} dropped")

    def sentence(self) -> str:
        """Return the report in one line.

        >>> ImportReport("azure", 10, 9, {"output_tokens is 0": 1}).sentence()
        'azure: 9 of 10 rows kept; dropped 1 (output_tokens is 0).'
        """
        losses = "".join(f"; dropped {count:,} ({reason})" for reason, count in self.dropped.items())
        return " ".join([f"{self.format}: {self.rows_kept:,} of {self.rows_read:,} rows kept{losses}.", *self.notes])
