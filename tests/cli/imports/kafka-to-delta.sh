#!/usr/bin/env bash
# Order totals, every five seconds.
set -euo pipefail
BROKERS=kafka-1:9092,kafka-2:9092
cd /opt/jobs
exec /opt/spark/bin/spark-submit \
  --master yarn --deploy-mode cluster --queue streaming \
  --name "Order Totals" --driver-memory 4g --executor-memory=8g --num-executors 10 \
  --packages org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.1,io.delta:delta-spark_2.12:3.2.0,com.example:geo:1.0 \
  --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
  --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
  --conf "spark.sql.shuffle.partitions=${PARTITIONS:-200}" \
  --conf spark.hadoop.fs.s3a.secret.key=wJalrXUtnFEMI \
  --conf spark.hadoop.fs.s3a.access.key="$AWS_KEY" \
  --py-files /opt/jobs/lib.zip \
  /opt/jobs/totals.py --brokers "$BROKERS" --day "$(date +%F)" --password hunter2 2>&1 | tee -a /var/log/totals.log
