"""A user's own job: `spark-submit job.py DATA_DIRECTORY TOPIC` counts a topic, shows two records, counts it again."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

import config


@udf(StringType())
def named(value: bytes) -> str:
    import config

    return config.PREFIX + bytes(value).decode()


data, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.addPyFile(config.__file__)
rows = spark.read.format("kafka_log").option("subscribe", topic).load(data).sort("offset")
# One after the other in the same worker: theirs behind ours, and ours behind theirs.
found = [rows.count(), *(row[0] for row in rows.limit(2).select(named("value")).collect()), rows.count()]
sys.stdout.write(f"{found}\n")
spark.stop()
