"""Runs the benchmarks that end within minutes; `make bench` calls this."""

import subprocess
import sys
from pathlib import Path

QUICK = ("main_job", "placements", "published", "published_steps", "network_error", "calibration_fit")
ROOT = Path(__file__).parents[1]

for name in QUICK:
    print(f"\n== benchmarks/{name}.py", flush=True)
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / f"{name}.py")], check=True, cwd=ROOT)
