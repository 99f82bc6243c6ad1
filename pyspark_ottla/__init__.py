"""The Spark data source of Ottla: `spark.read.format("kafka_log")` reads topics out of the broker's segment files.

Spark imports every package whose name begins with `pyspark_`, and registers its `DefaultSource`. So the import must not
fail with any version of Spark; with an older Spark, the format raises an error when it is used.
"""

try:
    from pyspark_ottla.source import KafkaLogSource as DefaultSource
except ImportError:
    from pyspark_ottla.older_spark import SourceForOlderSpark as DefaultSource

__all__ = ["DefaultSource"]
