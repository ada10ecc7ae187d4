"""The planner's questions, one module each, as pure functions."""
