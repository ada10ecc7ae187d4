"""Files that the browser is given; all are local, so that no request leaves the machine."""

from pathlib import Path

ICON = str(Path(__file__).parent / "icon.png")
