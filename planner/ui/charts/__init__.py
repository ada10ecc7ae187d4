"""Charts: pure functions from tidy rows to a Vega-Lite specification whose title is the finding.

Specifications are plain dictionaries. Building them through Altair's classes takes 0.3 s a page, more than the plan itself; the
tests hold each one against Altair's schema instead.
"""
