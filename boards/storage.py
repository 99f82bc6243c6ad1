"""The board of storage and recovery: the disk, compaction, and what a start has to recover."""

from typing import Final

from boards.panels import Board, Query, Row, Unit, lines
from boards.promql import highest, of, per_second, total

STORAGE: Final = Board(
    name="storage",
    title="storage and recovery",
    rows=[
        Row(
            "On disk",
            [
                lines(
                    "Size",
                    "Of all segments, without indexes.",
                    Unit.BYTES,
                    Query(total(of("kafka_log_log_size")), "all topics"),
                ),
                lines(
                    "Largest topics",
                    "Of all their segments.",
                    Unit.BYTES,
                    Query(highest(total(of("kafka_log_log_size"), "topic")), "{{topic}}"),
                ),
                lines(
                    "Segments",
                    "Of all partitions.",
                    Unit.COUNT,
                    Query(total(of("kafka_log_log_numlogsegments")), "segments"),
                ),
                lines(
                    "Free on the disk",
                    "On the file system of each data directory. Producing stops a little above 0, at "
                    "ottla.disk.reserve.bytes.",
                    Unit.BYTES,
                    Query(of("ottla_log_directory_free_bytes"), "{{logDirectory}}"),
                ),
                lines(
                    "The process and the disk",
                    "Bytes that the system has read from the disk for the process, and written for it. Reads are "
                    "consumers that ask for what is no longer in memory.",
                    Unit.BYTES_PER_S,
                    Query(per_second("kafka_server_kafkaserver_linux_disk_read_bytes"), "read"),
                    Query(per_second("kafka_server_kafkaserver_linux_disk_write_bytes"), "written"),
                ),
                lines(
                    "Segments begun and removed per second",
                    "A segment is begun when the one before is full or old, and removed by retention.",
                    Unit.COUNT,
                    Query(total(per_second("ottla_log_rolls_total")), "begun"),
                    Query(total(per_second("ottla_log_segments_removed_total")), "removed"),
                ),
            ],
        ),
        Row(
            "Flushes and failures",
            [
                lines(
                    "Flushes per second",
                    "After a segment is rolled, and as often as flush.messages and flush.ms demand.",
                    Unit.COUNT,
                    Query(per_second("kafka_log_logflushstats_logflushrateandtimems_count"), "flushes"),
                ),
                lines(
                    "How long a flush takes",
                    "A disk that fails is slow first.",
                    Unit.MS,
                    Query(
                        of("kafka_log_logflushstats_logflushrateandtimems", 'quantile=~"0.50|0.99|0.999"'),
                        "{{quantile}}",
                    ),
                ),
                lines(
                    "Failed",
                    "LogDirs that are offline, and partitions that nobody can use for it. 0 is well.",
                    Unit.COUNT,
                    Query(of("kafka_log_logmanager_offlinelogdirectorycount"), "directories"),
                    Query(of("kafka_server_replicamanager_offlinereplicacount"), "partitions"),
                ),
            ],
        ),
        Row(
            "Compaction (topics with cleanup.policy=compact)",
            [
                lines(
                    "Dirtiest log",
                    "The part of its bytes that could be cleaned and has not been, of the log where it is largest. A "
                    "log is cleaned above its min.cleanable.dirty.ratio.",
                    Unit.SHARE,
                    Query(f"{of('kafka_log_logcleanermanager_max_dirty_percent')} / 100", "dirty"),
                ),
                lines(
                    "Cleaners and the disk",
                    "Bytes of batches that cleaners have read, and kept; they are counted when a round is complete.",
                    Unit.BYTES_PER_S,
                    Query(per_second("ottla_log_cleaner_bytes_read_total"), "read"),
                    Query(per_second("ottla_log_cleaner_bytes_written_total"), "kept"),
                ),
                lines(
                    "Records cleaned per second",
                    "Records that are read and not kept have a later record with the same key, or were deleted.",
                    Unit.COUNT,
                    Query(per_second("ottla_log_cleaner_records_read_total"), "read"),
                    Query(per_second("ottla_log_cleaner_records_written_total"), "kept"),
                ),
                lines(
                    "Rounds per second",
                    "A round cleans one log. Failed: by an error of the log or the disk. Died: the cleaner's process "
                    "ended in it.",
                    Unit.COUNT,
                    Query(per_second("ottla_log_cleaner_rounds_total"), "{{outcome}}"),
                ),
                lines(
                    "Since a cleaner has looked for work",
                    "It grows up to log.cleaner.backoff.ms, or while all cleaners are at work.",
                    Unit.MS,
                    Query(of("kafka_log_logcleanermanager_time_since_last_run_ms"), "since"),
                ),
                lines(
                    "Not cleaned any more",
                    "Partitions that cleaners leave alone until the next start, and cleaners whose process has died "
                    "and that have completed no round since. 0 is well.",
                    Unit.COUNT,
                    Query(total(of("kafka_log_logcleanermanager_uncleanable_partitions_count")), "partitions"),
                    Query(of("kafka_log_logcleaner_deadthreadcount"), "cleaners"),
                ),
            ],
        ),
        Row(
            "Starts and recovery",
            [
                lines(
                    "Broker",
                    "1 starting, 2 recovery: logs are checked after an unclean stop, 3 running, 6 and 7 stopping.",
                    Unit.COUNT,
                    Query(of("kafka_server_kafkaserver_brokerstate"), "state"),
                ),
                lines(
                    "Logs to open",
                    "Before clients are served, by data directory.",
                    Unit.COUNT,
                    Query(of("kafka_log_logmanager_remaininglogstorecover"), "{{dir}}"),
                ),
                lines(
                    "Bytes to check",
                    "Batches that are read again after an unclean stop, by data directory.",
                    Unit.BYTES,
                    Query(of("ottla_log_recovery_remaining_bytes"), "{{dir}}"),
                ),
                lines(
                    "Logs opened",
                    "Since the process started, by data directory.",
                    Unit.COUNT,
                    Query(of("kafka_log_logmanager_logsloaded_total"), "{{dir}}"),
                ),
                lines(
                    "Up for",
                    "Each fall to 0 is a start.",
                    Unit.SECONDS,
                    Query(f"time() - {of('process_start_time_seconds')}", "up"),
                ),
                lines(
                    "Producers remembered",
                    "Idempotent producers whose last batches are known; they are forgotten after "
                    "producer.id.expiration.ms.",
                    Unit.COUNT,
                    Query(of("kafka_server_replicamanager_produceridcount"), "producers"),
                ),
            ],
        ),
    ],
)
