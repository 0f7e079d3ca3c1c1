"""A plain PySpark job, which knows nothing of Headgate: it copies a topic to a Delta table.

spark-submit --master "local[2]" \
  --packages org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7,io.delta:delta-spark_2.12:3.3.3 \
  --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
  --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
  --conf spark.databricks.delta.snapshotPartitions=2 \
  topic_to_table.py SERVERS TOPIC TABLE CHECKPOINT
"""

import sys

from pyspark.sql import SparkSession

servers, topic, table, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("topic-to-table").getOrCreate()
records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("minOffsetsPerTrigger", 20)
    .option("maxOffsetsPerTrigger", 20)
    .load()
)
rows = records.selectExpr("CAST(key AS STRING) AS key", "CAST(CAST(value AS STRING) AS INT) AS n")
query = (
    rows.writeStream.queryName("rows")
    .format("delta")
    .option("checkpointLocation", checkpoint)
    .trigger(processingTime="500 milliseconds")
    .start(table)
)
query.awaitTermination()
