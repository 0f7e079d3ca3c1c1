"""Soak the demo on Kafka: get the jars that it needs, then become `tests/soak`."""

import os
import sys
from pathlib import Path

from kafka import main as get_jars
from run import REPOSITORY

if __name__ == "__main__":
    get_jars(["--jars"])
    os.chdir(Path(REPOSITORY))
    os.execv(sys.executable, [sys.executable, "-m", "tests.soak", *sys.argv[1:]])
