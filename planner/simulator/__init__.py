"""Step-by-step simulation of the engines' schedulers."""
