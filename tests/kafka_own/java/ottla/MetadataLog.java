package ottla;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.util.BatchFileReader;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** The metadata log in a node's directory, read by Kafka's own classes: what the node knows of its cluster. */
final class MetadataLog {
    private final File directory;
    private List<String> read = List.of();
    private MetadataImage image = MetadataImage.EMPTY;
    private long lastOffset = -1;

    MetadataLog(String metadataLogDir) {
        directory = new File(metadataLogDir, "__cluster_metadata-0");
    }

    /** The cluster as the records on disk describe it. */
    synchronized MetadataImage image() {
        File[] files = directory.listFiles((parent, name) -> name.matches("\\d+(\\.log|-\\d+\\.checkpoint)"));
        if (files == null) {
            return MetadataImage.EMPTY;
        }
        List<String> found = Arrays.stream(files).map(file -> file.getName() + " " + file.length()).sorted().toList();
        if (!found.equals(read)) {
            replay(files);
            read = found;
        }
        return image;
    }

    /** The offset of the last record on disk. */
    synchronized long lastOffset() {
        image();
        return lastOffset;
    }

    private void replay(File[] files) {
        Comparator<File> byName = Comparator.comparing(File::getName);
        File snapshot = Arrays.stream(files).filter(file -> file.getName().endsWith(".checkpoint")).max(byName).orElse(null);
        List<File> logs = new ArrayList<>(Arrays.stream(files).filter(file -> file.getName().endsWith(".log")).sorted(byName).toList());
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        long end = -1;
        if (snapshot != null) {
            replay(snapshot, delta, -1);
            end = Long.parseLong(snapshot.getName().split("-")[0]) - 1;
        }
        for (File log : logs) {
            end = Math.max(end, replay(log, delta, end));
        }
        image = delta.apply(new MetadataProvenance(end, 0, 0, true));
        lastOffset = end;
    }

    private static long replay(File file, MetadataDelta delta, long known) {
        long end = known;
        try (BatchFileReader reader = new BatchFileReader.Builder().setPath(file.getPath()).build()) {
            while (reader.hasNext()) {
                BatchFileReader.BatchAndType next = reader.next();
                if (next.batch().lastOffset() <= known) {
                    continue;
                }
                end = next.batch().lastOffset();
                if (!next.isControl()) {
                    next.batch().forEach(record -> replay(record, delta));
                }
            }
        } catch (Exception beingWritten) {
            // The last batch is not there as a whole yet.
        }
        return end;
    }

    private static void replay(ApiMessageAndVersion record, MetadataDelta delta) {
        switch (MetadataRecordType.fromId(record.message().apiKey())) {
            case BEGIN_TRANSACTION_RECORD, END_TRANSACTION_RECORD, ABORT_TRANSACTION_RECORD, NO_OP_RECORD -> { }
            default -> delta.replay(record.message());
        }
    }
}
