"""The Accuracy page's table of known misses with their reasons."""

import streamlit as st

from planner.accuracy.shipped import ShippedAccuracy
from planner.ui.choices import gpu_names, model_names
from planner.ui.views.accuracy_misses import misses_frame
from planner.ui.words import sentence


def known(chosen: ShippedAccuracy) -> None:
    """Draw where predictions of a source lie farthest off, and why; nothing where no reason or description is known."""
    frame = misses_frame(chosen, gpu_names(), model_names())
    if frame.empty:
        return
    st.markdown("**The largest misses, and why**")
    st.table(frame.map(sentence), border="horizontal", hide_index=True, alt=f"Largest misses of {chosen.title}, and why")
