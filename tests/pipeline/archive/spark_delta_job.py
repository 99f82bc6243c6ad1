"""A user's job on the archive's Delta table: `spark_delta_job.py JARS TABLE DIRECTORY`.

It streams what is new since it was there last into `DIRECTORY/rows`, and says which offsets the table has.
"""

import json
import sys

from pyspark.sql import SparkSession

jars, table, directory = sys.argv[1:]
builder = SparkSession.builder.master("local[1]")
for key, value in (
    ("spark.jars", jars),
    ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"),
    ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
    ("spark.databricks.delta.snapshotPartitions", "1"), ("spark.sql.shuffle.partitions", "1"),
    ("spark.driver.host", "127.0.0.1"), ("spark.driver.bindAddress", "127.0.0.1"), ("spark.driver.memory", "1g"),
    ("spark.ui.enabled", "false"), ("spark.ui.showConsoleProgress", "false"), ("spark.log.level", "ERROR"),
):  # fmt: skip
    builder = builder.config(key, value)
spark = builder.getOrCreate()
stream = spark.readStream.format("delta").load(table).writeStream.format("parquet").option("path", f"{directory}/rows")
stream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start().awaitTermination()
found = [row.offset for row in spark.read.format("delta").load(table).select("offset").collect()]
sys.stdout.write(f"{json.dumps(sorted(found))}\n")
spark.stop()
