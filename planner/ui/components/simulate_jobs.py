"""Work that may take over a second: done beside the page, shown with its progress, and given up on a click.

Results are kept for all sessions, bounded by the requests that they hold.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar, cast

import streamlit as st

T = TypeVar("T")
Tell = Callable[[str, float], None]
PATIENCE_S = 0.9
_POLL_S = 0.4
_MOST_KEPT = 64
_MOST_KEPT_WEIGHT = 4_000_000
_WORKERS = 2


class CancelledError(Exception):
    """The work was given up."""


@dataclass(slots=True)
class Job(Generic[T]):
    """One piece of work in progress, of one session.

    text, share : what is being done, and how much is done [1]
    """

    key: Hashable
    future: "Future[T]"
    started_s: float
    text: str = "Waiting for a free core"
    share: float = 0.0
    cancelled: threading.Event = field(default_factory=threading.Event)

    def tell(self, text: str, share: float) -> None:
        """Note progress; raises CancelledError when the work isn't wanted any more."""
        if self.cancelled.is_set():
            raise CancelledError
        self.text, self.share = text, share


class Kept:
    """The latest results, each with a weight; the oldest go when all together weigh too much."""

    def __init__(self, most: int = _MOST_KEPT, most_weight: int = _MOST_KEPT_WEIGHT) -> None:
        self._most, self._most_weight = most, most_weight
        self._results: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: Hashable, weight: int, result: object) -> None:
        """Keep a result; it stays even if it weighs too much alone."""
        with self._lock:
            self._results[key] = (weight, result)
            self._results.move_to_end(key)
            while len(self._results) > 1 and (len(self._results) > self._most or self.weight > self._most_weight):
                self._results.popitem(last=False)

    def get(self, key: Hashable) -> Any:  # noqa: ANN401 - of whatever type was put
        """Return a kept result, or None."""
        with self._lock:
            if key not in self._results:
                return None
            self._results.move_to_end(key)
            return self._results[key][1]

    @property
    def weight(self) -> int:
        """Weight of all results together."""
        return sum(weight for weight, _ in self._results.values())


@cache
def _kept() -> Kept:
    return Kept()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_WORKERS, thread_name_prefix="simulate")


def kept(key: Hashable, weight: int, make: Callable[[], T]) -> T:
    """Return a kept result, or make it here and keep it: for work that a page can't do without.

    weight : how much room it takes, in requests
    """
    found = _kept().get(key)
    if found is None:
        found = make()
        _kept().put(key, weight, found)
    return cast("T", found)


def result_of(slot: str, key: Hashable, weight: int, work: Callable[[Tell], T], doing: str = "Simulating") -> T | None:
    """Return the result of some work; None while it isn't there, after drawing its progress or the offer to start again.

    slot : name of the place on the page; new work in a slot gives up the old
    key : what the result depends on
    weight : how much room it takes, in requests
    doing : heads the progress

    What `work` raises is raised here.
    """
    found = _kept().get(key)
    if found is not None:
        _give_up(slot, unless=key)
        return cast("T", found)
    if st.session_state.get(_given_up(slot)) == key:
        _offer_again(slot)
        return None
    job = _job(slot, key, work)
    try:
        result = job.future.result(timeout=PATIENCE_S)
    except NotYet:
        _watch(slot, doing)
        return None
    except BaseException:
        st.session_state.pop(_place(slot), None)
        raise
    st.session_state.pop(_place(slot), None)
    _kept().put(key, weight, result)
    return result


def _job(slot: str, key: Hashable, work: Callable[[Tell], T]) -> "Job[T]":
    """Return the slot's job, started if it isn't running."""
    running: Job[T] | None = st.session_state.get(_place(slot))
    if running is not None and running.key == key:
        return running
    _give_up(slot)
    started: Job[T] = Job(key, Future(), time.monotonic())
    started.future = _pool().submit(lambda: work(started.tell))
    st.session_state[_place(slot)] = started
    st.session_state.pop(_given_up(slot), None)
    return started


@st.fragment(run_every=_POLL_S)
def _watch(slot: str, doing: str) -> None:
    """Draw the progress of a slot's job until it is done."""
    job: Job[object] | None = st.session_state.get(_place(slot))
    if job is None or job.future.done():
        st.rerun()
        return
    elapsed_s = time.monotonic() - job.started_s
    status = st.status(doing, expanded=True)
    status.progress(job.share, f"{job.text} · {elapsed_s:.0f} s")
    if status.button("Cancel", key=f"cancel-{slot}", icon=":material/close:"):
        _cancel(slot)
        st.rerun()


def _cancel(slot: str) -> None:
    job: Job[object] | None = st.session_state.get(_place(slot))
    if job is not None:
        st.session_state[_given_up(slot)] = job.key
    _give_up(slot)


def _give_up(slot: str, unless: Hashable = None) -> None:
    """End a slot's job at its next stage."""
    job: Job[object] | None = st.session_state.get(_place(slot))
    if job is None or (unless is not None and job.key == unless):
        return
    job.cancelled.set()
    job.future.cancel()
    st.session_state.pop(_place(slot), None)


def _offer_again(slot: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("Cancelled.")
        st.button("Run it", key=f"again-{slot}", icon=":material/play_arrow:", on_click=_forget_cancel, args=(slot,))


def _forget_cancel(slot: str) -> None:
    st.session_state.pop(_given_up(slot), None)


def _place(slot: str) -> str:
    return f"_job_{slot}"


def _given_up(slot: str) -> str:
    return f"_job_given_up_{slot}"
