"""A Spark as it is without Headgate: `python open_driver_story.py` prints its port, then waits."""

import os
import sys

from pyspark.sql import SparkSession

os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
session = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "512m")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
sys.stdout.write(f"{session.conf.get('spark.driver.port')}\n")
sys.stdout.flush()
sys.stdin.readline()  # until the test has tried it
