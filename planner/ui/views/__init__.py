"""From a plan to what a page shows: sentences, figures with their unit, tidy frames. Nothing here draws."""
