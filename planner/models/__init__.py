"""Language models as layer groups, and what follows from their shape."""
