"""Charts: pure functions from a tidy frame to a figure whose title is the finding."""
