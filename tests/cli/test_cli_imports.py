"""What a verb needn't wait for: listings answer without the libraries that only a plan takes."""

import subprocess
import sys

import pytest

from planner.paths import ROOT_DIR

HEAVY = ("pandas", "scipy", "numba", "pyarrow", "streamlit")


@pytest.mark.parametrize(
    "code",
    [
        "import planner",
        "import planner.cli as cli; cli.main(['gpus'])",
        "import planner.cli as cli; cli.main(['models', '--json'])",
        "from planner import Scenario, load_gpu, load_model; Scenario(), load_gpu('l4'), load_model('llama-3.1-8b-instruct')",
    ],
    ids=["package", "gpus", "models", "catalogues"],
)
def test_what_needs_no_heavy_library_imports_none(code: str) -> None:
    line = f"import sys; {code}; print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", line], cwd=ROOT_DIR, capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
