package ottla;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import scala.Option;

/** A partition's directory, with the methods of Kafka's UnifiedLog whose answers stand on disk. */
final class LogOnDisk {
    private final TopicPartition partition;
    private final File directory;

    private LogOnDisk(TopicPartition partition, File directory) {
        this.partition = partition;
        this.directory = directory;
    }

    /** The log of a partition in a broker's directories, or the one that is being copied to another directory. */
    static Option<UnifiedLog> find(KafkaConfig config, TopicPartition partition, boolean future) {
        String name = "\\Q" + partition + "\\E" + (future ? "\\..*-future" : "");
        Optional<Path> found = config.logDirs().stream().flatMap(logDir -> {
            try (Stream<Path> paths = Files.list(Path.of(logDir))) {
                return paths.filter(path -> path.getFileName().toString().matches(name)).toList().stream();
            } catch (IOException gone) {
                return Stream.empty();
            }
        }).findFirst();
        return Option.apply(found.map(path -> StandIn.of(UnifiedLog.class, new LogOnDisk(partition, path.toFile()), Unreachable::inTheBroker))
            .orElse(null));
    }

    public TopicPartition topicPartition() {
        return partition;
    }

    public File dir() {
        return directory;
    }

    public String parentDir() {
        return directory.getParent();
    }

    public int numberOfSegments() {
        return segments().length;
    }

    public long size() {
        return Arrays.stream(segments()).mapToLong(File::length).sum();
    }

    public long logStartOffset() {
        try {
            File checkpoint = new File(directory.getParentFile(), "log-start-offset-checkpoint");
            Long written = checkpoint.exists() ? new OffsetCheckpointFile(checkpoint, null).read().get(partition) : null;
            return Math.max(written == null ? 0 : written, baseOffset(segments()[0]));
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    public long logEndOffset() {
        File[] segments = segments();
        File last = segments[segments.length - 1];
        long end = baseOffset(last);
        try (FileRecords records = FileRecords.open(last, false)) {
            for (RecordBatch batch : records.batches()) {
                end = batch.nextOffset();
            }
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
        return end;
    }

    private File[] segments() {
        File[] found = directory.listFiles((parent, name) -> name.endsWith(".log"));
        Arrays.sort(found, Comparator.comparing(File::getName));
        return found;
    }

    private static long baseOffset(File segment) {
        return Long.parseLong(segment.getName().replace(".log", ""));
    }

    @Override
    public String toString() {
        return directory.toString();
    }
}
