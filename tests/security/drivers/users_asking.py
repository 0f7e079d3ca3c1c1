"""A script with a listener of its own that asks another driver's ports with its own keys.

`users_asking.py HEARD PORTS FOUND`, three files: its listener's notes, what to ask, the answers.
"""

import sys
import time
from pathlib import Path

import strange_asker  # type: ignore[import-not-found]
import users_listening  # type: ignore[import-not-found]
from pyspark import SparkContext
from pyspark.sql import SparkSession

heard, ports, found = map(Path, sys.argv[1:])
spark = SparkSession.builder.getOrCreate()
spark.streams.addListener(users_listening.Noting(str(heard)))
query = users_listening.writer(spark, {"batches": f"{heard}.batches"}).queryName("own").start()
gateway, context = SparkContext._gateway, SparkContext._active_spark_context
keys = [
    gateway.gateway_parameters.auth_token,
    gateway.callback_server_parameters.auth_token,
    context._accumulatorServer.auth_token,
]
while not ports.exists():
    time.sleep(0.1)
strange_asker.ask_from_files(ports, found, map(str, keys))
query.awaitTermination()
