"""What `format("kafka_log")` is where Spark is too old for it: a sentence."""

from collections.abc import MutableMapping

from pyspark import __version__
from pyspark.sql.datasource import DataSource


class SourceForOlderSpark(DataSource):
    """Refuses to be used."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        raise RuntimeError(f"kafka_log needs Spark 4.2, and this is {__version__}: pip install 'ottla[spark]'")

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "kafka_log"
