"""Files that the browser is given; all are local, so that no request leaves the machine."""

from pathlib import Path

_FOLDER = Path(__file__).parent
ICON = str(_FOLDER / "icon.png")
WORDMARK = str(_FOLDER / "headroom.svg")
