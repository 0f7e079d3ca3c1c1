"""The command's version, which is that of the server released with it."""

import runpy
from pathlib import Path

from setuptools import setup

SERVER = Path(__file__).resolve().parent.parent / "headgate_server" / "__init__.py"

if __name__ == "__main__":
    setup(version=runpy.run_path(str(SERVER))["__version__"])
