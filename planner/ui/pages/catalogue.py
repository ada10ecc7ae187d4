"""The Catalogue page: GPUs, prices, models and workloads with their sources, and the user's own files."""

import datetime as dt

import streamlit as st

from planner.ui.components import answer, catalogue


def main() -> None:
    """Draw the tab that is open; the others cost nothing."""
    answer.notices()
    catalogue.home()
    gpus, prices, models, workloads = st.tabs(["GPUs", "Prices", "Models", "Workloads"], key="catalogue-tab", on_change="rerun")
    if gpus.open:
        with gpus:
            catalogue.gpus()
    if prices.open:
        with prices:
            catalogue.prices(dt.datetime.now(dt.UTC).date())
    if models.open:
        with models:
            catalogue.models()
    if workloads.open:
        with workloads, st.spinner("Reading the traces …"):
            catalogue.workloads()


if __name__ == "__main__":
    main()
