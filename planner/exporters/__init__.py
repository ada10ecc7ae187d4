"""What leaves the planner: engine flags, tables, reports."""
