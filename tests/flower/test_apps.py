"""The apps that Flower loads."""

import subprocess
import sys


def test_the_client_app_loads_little_because_every_message_starts_a_process() -> None:
    heavy = ("jax", "pandas", "scipy", "sklearn", "pyarrow", "matplotlib", "clustpsi.runs", "clustpsi.engine")
    code = f"import sys, clustpsi.flower.client; print([each for each in {heavy} if each in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "[]"
