"""How many requests arrive together: counts of a renewal process with gamma gaps, Poisson among them.

Times are in mean gaps (x = rate × time), so that only the squared CV of the gaps matters. vLLM's own load generator draws gamma
gaps (its burstiness is 1 / squared CV), and measured clients are well described by them (ServeGen, arXiv 2505.09999).
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from planner.errors import InputError

Floats = npt.NDArray[np.float64]

LARGEST_CV2 = 900.0
_FEWEST_CV2 = 1e-3
_GRID = np.concatenate([[0.0], np.geomspace(1e-4, 1e3, 85)])
_ASYMPTOTE_FROM = 30.0  # times the larger of 1 and cv²: the relaxation time of a bursty renewal process
_LARGEST_SHAPE = 1.0 / _FEWEST_CV2


def check_cv2(arrival_cv2: float) -> float:
    """Return the squared CV, or raise InputError when it is out of bounds (0 to 900: a CV of 30)."""
    if not 0.0 <= arrival_cv2 <= LARGEST_CV2:
        bound = f"must be between 0 and {LARGEST_CV2:g}"
        raise InputError("arrival_cv2", arrival_cv2, bound, "Give variance over squared mean of the gaps; 1 is Poisson")
    return arrival_cv2


def none_within(x: Floats, arrival_cv2: float) -> Floats:
    """Chance that nothing arrives within a stretch that starts at any time [1]; x : length of the stretch [mean gap].

    With gaps of law F the chance is the integral of 1 - F from x on. For gamma gaps of shape k that is Q(k+1, kx) - x·Q(k, kx)
    with the regularised upper incomplete gamma function Q; exp(-x) for Poisson; 1 - x, at least 0, for even gaps.
    """
    if arrival_cv2 == 1.0:
        return np.exp(-x)
    if arrival_cv2 < _FEWEST_CV2:
        return np.maximum(1.0 - x, 0.0)
    shape = 1.0 / arrival_cv2
    return np.clip(special.gammaincc(shape + 1.0, shape * x) - x * special.gammaincc(shape, shape * x), 0.0, 1.0)


def others_within(x: Floats, arrival_cv2: float) -> Floats:
    """Mean number of other arrivals in the stretch that an arrival falls into [1]; x : length of the stretch [mean gap].

    With the renewal function M(x), the mean count in x after an arrival, it is 2/x times the integral of M from 0 to x: x for
    Poisson, more for bursts, with x + cv² - 1 for long stretches (Cox, Renewal Theory, 1962, chapter 4). Read from a table with a
    relative error below 1e-3.
    """
    if arrival_cv2 == 1.0:
        return x
    return x * np.interp(x, _GRID, _others_per_gap(arrival_cv2))


@lru_cache(maxsize=64)
def _others_per_gap(arrival_cv2: float) -> Floats:
    x = _GRID[1:]
    shape = min(1.0 / max(arrival_cv2, _FEWEST_CV2), _LARGEST_SHAPE)
    near = x[x < _ASYMPTOTE_FROM * max(1.0, arrival_cv2)]
    longest = near[-1]
    terms = int(longest + 10.0 * np.sqrt(longest * arrival_cv2) + 10.0 * (1.0 + arrival_cv2))
    total = np.zeros_like(near)
    for n in range(1, terms + 1):
        k, kx = n * shape, shape * near
        total += special.gammainc(k, kx) - k / kx * special.gammainc(k + 1.0, kx)
    far = 1.0 + (arrival_cv2 - 1.0) / x[len(near) :]
    ratio = np.concatenate([2.0 * total / near, far])
    return np.concatenate([ratio[:1], ratio])
