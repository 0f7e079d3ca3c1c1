"""The version of the command: that of the server, which is released with it."""

import runpy
from pathlib import Path

from setuptools import setup

SERVER = Path(__file__).resolve().parent.parent / "headgate_server" / "__init__.py"

if __name__ == "__main__":
    setup(version=runpy.run_path(str(SERVER))["__version__"])
