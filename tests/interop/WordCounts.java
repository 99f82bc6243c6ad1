// A Kafka Streams application: arguments are BOOTSTRAP LINES COUNTS STATE_DIRECTORY [SETTING=VALUE ...]. It counts the words of the lines in a
// topic, and writes "word count" into another topic whenever a word has come, exactly once (exactly_once_v2). Its state's
// changelog, word-counts-counts-changelog, is cleaned as soon as it has a segment for each half of a second.

import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

public class WordCounts {
    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.putAll(Map.of(
                "application.id", "word-counts",
                "bootstrap.servers", arguments[0],
                "state.dir", arguments[3],
                "processing.guarantee", "exactly_once_v2",
                "num.stream.threads", 2,
                "commit.interval.ms", 100,
                // Without a cache every new count is written, not only the last one before a commit.
                "statestore.cache.max.bytes", 0));
        for (String setting : Arrays.copyOfRange(arguments, 4, arguments.length)) {
            settings.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        }
        // What was killed is given up soon: its open transactions, and its place in the group.
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 5_000);
        if (!"streams".equals(settings.get("group.protocol"))) {  // else the broker has these times
            settings.putAll(Map.of(
                    StreamsConfig.consumerPrefix("session.timeout.ms"), 2_000,
                    StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 300));
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                        .withLoggingEnabled(Map.of(
                                "segment.ms", "500", "min.cleanable.dirty.ratio", "0.01", "file.delete.delay.ms", "0")))
                .toStream()
                .mapValues((word, count) -> word + " " + count)
                .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch failed = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(reason -> {
            reason.printStackTrace();
            failed.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        failed.await();
        Runtime.getRuntime().halt(1);
    }
}
