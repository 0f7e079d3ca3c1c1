"""Programs that the tests write to disk and run, by Headgate and by plain Python alike.

None of them knows Headgate. Where a program takes `--plain`, it brings a session of its own, as
`python program.py` needs one; in a driver it is given the driver's.
"""

#: Beside the program: found by `sys.path[0]` in the driver and in Python workers.
HELPER = """
def shout(word):
    return word.upper() + "!"
"""

#: Several queries, two threads, a helper module, foreachBatch, toTable and a join of streams.
SEVERAL = """
import json
import os
import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr, udf

import helper

SOURCE, OUT = sys.argv[1], sys.argv[2]
SCHEMA = "id LONG, word STRING, at TIMESTAMP"

spark = (
    SparkSession.builder.appName("several")
    .master("local[3]")
    .config("spark.executor.memory", "3g")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)


def rows(name):
    return spark.readStream.schema(SCHEMA).json(f"{SOURCE}/{name}").withWatermark("at", "1 minute")


def loud():
    shout = udf(helper.shout)
    return (
        rows("left").select("id", shout("word").alias("word")).writeStream.queryName("loud")
        .format("json").option("path", f"{OUT}/loud").option("checkpointLocation", f"{OUT}/cp/loud")
        .trigger(availableNow=True).start()
    )


def keep(batch, number):
    with open(f"{OUT}/batches-{os.getpid()}", "a") as file:
        for row in batch.collect():
            file.write(json.dumps([number, row.id, row.word]) + "\\n")


started = []
threads = [
    threading.Thread(target=lambda: started.append(loud())),
    threading.Thread(
        target=lambda: started.append(
            rows("right").writeStream.foreachBatch(keep).queryName("kept")
            .trigger(availableNow=True).start(checkpointLocation=f"{OUT}/cp/kept")
        )
    ),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

left, right = rows("left").alias("l"), rows("right").alias("r")
joined = left.join(
    right,
    expr("l.id = r.id AND r.at BETWEEN l.at - INTERVAL 1 MINUTE AND l.at + INTERVAL 1 MINUTE"),
).select(col("l.id"), col("l.word").alias("one"), col("r.word").alias("other"))
started.append(
    joined.writeStream.format("json").queryName("joined").outputMode("append")
    .trigger(availableNow=True).option("checkpointLocation", f"{OUT}/cp/joined")
    .start(f"{OUT}/joined")
)
other = spark.newSession()
started.append(
    other.readStream.schema(SCHEMA).json(f"{SOURCE}/left").writeStream.queryName("table")
    .option("path", f"{OUT}/table").option("checkpointLocation", f"{OUT}/cp/table")
    .trigger(availableNow=True).toTable("words")
)
for query in started:
    query.awaitTermination()
print("program says", sorted(query.name for query in started), sys.argv[3:], flush=True)
spark.stop()
"""

#: One stateful query that counts words; its batches are slow enough to be killed in.
COUNTING = """
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

SOURCE, OUT, SLOW = sys.argv[1], sys.argv[2], float(sys.argv[3])
spark = SparkSession.builder.appName("counting").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")


@udf("string")
def slowly(word):
    time.sleep(SLOW)
    return word


words = (
    spark.readStream.schema("id LONG, word STRING").option("maxFilesPerTrigger", "1").json(SOURCE)
)
unique = words.select("id", slowly("word").alias("word")).dropDuplicates(["id"])
writer = (
    unique.writeStream.queryName("counts").format("json").outputMode("append")
    .option("path", f"{OUT}/rows")
)
if len(sys.argv) > 4:  # plain: it reads what there is, and ends
    writer = writer.trigger(availableNow=True).option("checkpointLocation", f"{OUT}/plain")
writer.start().awaitTermination()
"""

#: Does what its first argument says, with one query on the rate source.
BEHAVING = """
import os
import sys
import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def rate(name=""):
    writer = spark.readStream.format("rate").load().writeStream.format("noop")
    return writer.queryName(name) if name else writer


def boom(batch, number):
    raise ValueError("this batch is none")


def main(how):
    if how == "exit":
        rate("first").start()
        sys.exit(3)
    if how == "raise":
        raise RuntimeError("the program is at fault")
    if how == "returns":
        rate("first").start()
    if how == "deaf":
        rate("first").start().awaitTermination()
        while True:
            time.sleep(1)
    if how == "unnamed":
        rate().start()
        try:
            rate().start()
        except Exception as error:
            print("REFUSED", error, flush=True)
        rate("named").start()
        spark.streams.awaitAnyTermination()
    if how == "elsewhere":
        spark.conf.set("fs.defaultFS", "hdfs://nn:9")  # as a cluster's configuration does on YARN
        for place in ("/etl/ck", "ck", "hdfs:///etl/ck"):
            try:
                rate("elsewhere").start(checkpointLocation=place)
            except Exception as error:
                print("REFUSED", error, flush=True)
        rate("here").start(checkpointLocation="file://" + os.path.abspath("ck")).awaitTermination()
    if how == "swallows":
        spark.readStream.format("rate").load().writeStream.foreachBatch(boom).queryName("bad").start()
        while True:
            time.sleep(1)
    if how == "again":
        for _ in range(3):
            query = spark.readStream.format("rate").load().writeStream.foreachBatch(boom)
            query = query.queryName("bad").start()
            try:
                query.awaitTermination()
            except Exception:
                pass
        rate("bad").start(checkpointLocation=os.path.abspath("other")).awaitTermination()
    if how == "past":
        rate("met").start()
        writer = rate("stranger")
        writer._jwrite.option("checkpointLocation", os.path.abspath("stranger"))
        writer._jwrite.start()
        spark.streams.awaitAnyTermination()
        time.sleep(600)
    if how == "stops":
        query = rate("first").start()
        while not query.lastProgress:
            time.sleep(0.2)
        query.stop()


main(sys.argv[1])
"""

#: State of its own in pandas: how often each word came, kept from batch to batch.
STATEFUL = """
import sys

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor

SOURCE, OUT = sys.argv[1], sys.argv[2]
spark = SparkSession.builder.appName("stateful").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "1")
spark.conf.set(
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
)


class Counting(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n LONG")

    def handleInputRows(self, key, rows, timers):
        before = self.seen.get()[0] if self.seen.exists() else 0
        now = before + sum(len(part) for part in rows)
        self.seen.update((now,))
        yield pd.DataFrame({"word": [key[0]], "n": [now]})

    def close(self):
        pass


rows = spark.readStream.schema("id LONG, word STRING").option("maxFilesPerTrigger", "1")
counts = rows.json(SOURCE).groupBy("word").transformWithStateInPandas(
    Counting(), "word STRING, n LONG", "Update", "None"
)


def keep(batch, number):
    with open(f"{OUT}/counted", "a") as file:
        for row in sorted(batch.collect()):
            file.write(f"{number} {row.word} {row.n}\\n")


counts.writeStream.queryName("stateful").outputMode("update").foreachBatch(keep).trigger(
    availableNow=True
).start(checkpointLocation=f"{OUT}/cp").awaitTermination()
"""

#: Asks for what a driver cannot give, by a context and by a session.
ASKING = """
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

conf = (
    SparkConf()
    .setMaster("local[7]")
    .setAppName("asking")
    .set("spark.jars", "/nowhere/one.jar")
    .set("spark.jars.packages", "org.example:nothing:1.0")
    .set("spark.memory.fraction", "0.5")
)
context = SparkContext.getOrCreate(conf)
assert context is SparkContext.getOrCreate()
builder = SparkSession.builder.config("spark.sql.extensions", "org.example.Extensions")
spark = builder.config("spark.sql.shuffle.partitions", "3").getOrCreate()
assert spark.sparkContext is context
print("PARTITIONS", spark.conf.get("spark.sql.shuffle.partitions"), flush=True)
"""

#: What the methods that wait return and raise; each line is printed for comparison.
AWAITING = """
import sys
import time

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def say(*words):
    # One write, as the JVM writes to the same log.
    sys.stdout.write(" ".join(["SAID", *map(str, words)]) + "\\n")
    sys.stdout.flush()


def raised(name, wait):
    try:
        say(name, "returned", wait())
    except StreamingQueryException as error:
        say(name, "raised", type(error).__name__, "this batch is none" in str(error))


def boom(batch, number):
    raise ValueError("this batch is none")


def started(name, function):
    rows = spark.readStream.format("rate").load()
    return rows.writeStream.foreachBatch(function).queryName(name).start()


bad = started("bad", boom)
raised("of the query", bad.awaitTermination)
raised("again, with a limit", lambda: bad.awaitTermination(5))
raised("of any", spark.streams.awaitAnyTermination)
raised("of any, with a limit", lambda: spark.streams.awaitAnyTermination(5))
spark.streams.resetTerminated()
good = started("bad", lambda batch, number: None)
raised("while it runs", lambda: good.awaitTermination(1))
raised("while any runs", lambda: spark.streams.awaitAnyTermination(1))
while not good.lastProgress:
    time.sleep(0.2)
good.stop()
raised("once it was stopped", good.awaitTermination)
raised("once it was stopped, with a limit", lambda: good.awaitTermination(5))
raised("any, once one was stopped", lambda: spark.streams.awaitAnyTermination(5))
spark.stop()
"""

#: Keeps what it reads in the memory sink, and says how much there is.
REMEMBERING = """
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("id LONG").json(sys.argv[1])
query = rows.writeStream.format("memory").queryName("kept").trigger(availableNow=True).start()
query.awaitTermination()
print("REMEMBERED", spark.sql("SELECT count(*) FROM kept").first()[0], flush=True)
"""

#: Names its checkpoint, and notes which batch has read what.
NAMING = """
import sys

from pyspark.sql import SparkSession

SOURCE, OUT = sys.argv[1], sys.argv[2]
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", "1").json(SOURCE)


def keep(batch, number):
    with open(f"{OUT}/batches", "a") as file:
        for row in batch.collect():
            file.write(f"{number} {row.id}\\n")


query = rows.writeStream.foreachBatch(keep).queryName("named").trigger(availableNow=True)
query.option("checkpointLocation", f"{OUT}/cp").start().awaitTermination()
"""

#: A stateful query with a checkpoint of its own; with a third argument, it reads what there is, and
#: ends.
MOVING = """
import sys

from pyspark.sql import SparkSession

SOURCE, OUT = sys.argv[1], sys.argv[2]
spark = SparkSession.builder.appName("moving").getOrCreate()
words = (
    spark.readStream.schema("id LONG, word STRING").option("maxFilesPerTrigger", "1").json(SOURCE)
)
writer = (
    words.dropDuplicates(["id"]).writeStream.queryName("words").format("json")
    .option("path", f"{OUT}/rows").option("checkpointLocation", f"{OUT}/checkpoint")
)
if len(sys.argv) > 3:
    writer = writer.trigger(availableNow=True)
writer.start().awaitTermination()
"""
