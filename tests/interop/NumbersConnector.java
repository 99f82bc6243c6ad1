// A source connector for Kafka Connect: its task emits the numbers from 0 up to "up.to", which the connector's config says,
// to "topic". The offset of a record is the number that comes behind it. Exactly once, if the worker supports that.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

public class NumbersConnector extends SourceConnector {
    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> given) {
        settings = given;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(settings);
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Numbers.class;
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef()
                .define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "")
                .define("up.to", ConfigDef.Type.LONG, ConfigDef.Importance.HIGH, "");
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public String version() {
        return "1";
    }

    @Override
    public void stop() {}

    public static class Numbers extends SourceTask {
        private static final Map<String, String> PARTITION = Map.of("of", "numbers");
        private static final int MOST_AT_ONCE = 5;
        private String topic;
        private long next;
        private long upTo;

        @Override
        public void start(Map<String, String> given) {
            topic = given.get("topic");
            upTo = Long.parseLong(given.get("up.to"));
            Map<String, Object> offset = context.offsetStorageReader().offset(PARTITION);
            next = offset == null ? 0 : (Long) offset.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            List<SourceRecord> records = new ArrayList<>();
            while (next < upTo && records.size() < MOST_AT_ONCE) {
                String number = Long.toString(next++);
                records.add(new SourceRecord(
                        PARTITION, Map.of("next", next), topic, 0, Schema.STRING_SCHEMA, number));
            }
            if (records.isEmpty()) Thread.sleep(20);
            return records;
        }

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void stop() {}
    }
}
