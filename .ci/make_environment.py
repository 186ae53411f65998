"""Makes a virtual environment with the project and everything that its tests need, from pinned versions if given."""

import argparse
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("path", type=Path)
parser.add_argument("--constraints", type=Path)
arguments = parser.parse_args()

if sys.version_info < (3, 11):  # noqa: UP036 (an older interpreter may well run this)
    sys.exit(
        f"meshwright needs Python 3.11 or newer, this is {sys.version.split()[0]}; try: make PYTHON=python3.12 ..."
    )
project = tomllib.loads(Path("pyproject.toml").read_text())
venv.create(arguments.path, with_pip=True, clear=True)
pip = [str(arguments.path / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
pinned = ["--constraint", str(arguments.constraints)] if arguments.constraints else []
subprocess.run([*pip, *pinned, "-e", ".[tpu,postgres,web]", *project["dependency-groups"]["dev"]], check=True)
