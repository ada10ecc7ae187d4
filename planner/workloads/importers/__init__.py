"""Importers: a user's rows (CSV, JSON lines, parquet, or a DataFrame) become a trace and a Workload."""

from planner.workloads.importers.formats import ROW_FORMATS
from planner.workloads.importers.reading import MAX_UPLOAD_BYTES
from planner.workloads.importers.report import ImportReport
from planner.workloads.importers.rows import ColumnMap, ImportedRows, import_rows
from planner.workloads.importers.workload import measured_peaks, workload_from_rows, workload_from_trace
from planner.workloads.trace import MAX_ROWS

__all__ = [
    "MAX_ROWS",
    "MAX_UPLOAD_BYTES",
    "ROW_FORMATS",
    "ColumnMap",
    "ImportReport",
    "ImportedRows",
    "import_rows",
    "measured_peaks",
    "workload_from_rows",
    "workload_from_trace",
]
