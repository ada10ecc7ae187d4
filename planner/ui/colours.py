"""Colours and shapes of marks: colour-blind safe, and with 3:1 contrast on the light and on the dark ground alike.

The hues are Okabe and Ito's ("Color Universal Design", 2008). Orange and sky blue are darkened (2.2:1 on white as published);
black and yellow are left out, as each vanishes on one of the two grounds. One set serves both themes, so that a chart needs no
redrawing when the theme changes.
"""

INK = "currentColor"
ACCENT = "#0072B2"
WARNING = "#D55E00"
GREY = "#7A8692"
FAINT = "#7A869233"
_HUE_PERCENT = 70

HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B57D00", "#2F8FC4")
SHAPES = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "cross",
    "triangle-right",
    "triangle-left",
    "M0,-1L0.95,-0.31L0.59,0.81L-0.59,0.81L-0.95,-0.31Z",  # pentagon
    "M-0.87,-0.5L0,-1L0.87,-0.5L0.87,0.5L0,1L-0.87,0.5Z",  # hexagon
)

# From little to much; the text colour that reads on each step is in `on_step`.
STEPS = ("#CFE3F1", "#A5CBE5", "#74AFD6", "#4F9BCC", "#0072B2", "#00568A", "#003B61")
_FIRST_DARK_STEP = 4


def name_colour(hue: str) -> str:
    """Return the colour of a name beside a mark of this hue: mixed with the theme's own text, as a text needs 4.5:1 on its ground.

    >>> name_colour("#0072B2")
    'color-mix(in srgb, #0072B2 70%, currentColor)'
    """
    return f"color-mix(in srgb, {hue} {_HUE_PERCENT}%, {INK})"


def on_hue(hue: str) -> str:
    """Return the colour of text on a mark of this hue: white on the dark one, nearly black on the others."""
    return "#FFFFFF" if hue == ACCENT else "#0B1016"


def gpu_colour(rank: int) -> str:
    """Return the colour of the GPU with this place in the catalogue: the same on every chart."""
    return HUES[rank % len(HUES)]


def gpu_shape(rank: int) -> str:
    """Return its shape, which tells GPUs of one colour apart."""
    return SHAPES[rank // len(HUES) % len(SHAPES)]


def step_of(value: float, largest: float) -> int:
    """Return the step of the sequential scale for a value from 0 to `largest`.

    >>> step_of(0.0, 10.0), step_of(10.0, 10.0)
    (0, 6)
    """
    return min(len(STEPS) - 1, int(value / largest * len(STEPS))) if largest > 0.0 else 0


def on_step(step: int) -> str:
    """Return the colour of text on a step of the sequential scale."""
    return "#FFFFFF" if step >= _FIRST_DARK_STEP else "#1B2733"
