"""A JVM of another application tries the port of a driver: `stranger_story.py PORT [SECRET]`.

Prints "in: …" with what the driver's block manager told it, or "out: …" with why not.
"""

import os
import sys

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway


def main(port: int, secret: str = "") -> str:
    """Connect as an executor would, without a secret or with its own, and ask for something."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    gateway = launch_gateway(SparkConf(loadDefaults=False).set("spark.driver.memory", "256m"))
    spark, scala = gateway.jvm.org.apache.spark, gateway.jvm.scala
    conf = spark.SparkConf(False)
    if secret:
        conf.set("spark.authenticate", "true").set("spark.authenticate.secret", secret)
    no_key, no_file = (
        getattr(spark.SecurityManager, f"$lessinit$greater$default${place}")() for place in (2, 3)
    )
    manager = spark.SecurityManager(conf, no_key, no_file)
    rpc = spark.rpc.RpcEnv.create("stranger", "127.0.0.1", 0, conf, manager, False)
    try:
        master = rpc.setupEndpointRef(spark.rpc.RpcAddress("127.0.0.1", port), "BlockManagerMaster")
        question = getattr(spark.storage, "BlockManagerMessages$GetMemoryStatus$")
        question = getattr(question, "MODULE$")
        return f"in: {master.askSync(question, scala.reflect.ClassTag.Any()).toString()}"
    except Exception as error:
        return "out: " + " ".join(str(error).split())[:2000]
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()


if __name__ == "__main__":
    sys.stdout.write(main(int(sys.argv[1]), *sys.argv[2:]) + "\n")
