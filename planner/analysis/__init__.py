"""The planner's questions, one module each: pure functions whose results explain themselves."""
