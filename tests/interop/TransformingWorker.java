// The worker of tests/support/clients/transforming.py as a Java client. Arguments: BOOTSTRAP SOURCE TARGET GROUP
// TRANSACTIONAL_ID. It reads the source in the group and writes "<value>" for each value, to the partition of the same
// number. A transaction has the records of one poll and the offsets behind them. Whatever goes wrong ends the process: a
// worker that is started again goes on where the last committed transaction has ended.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class TransformingWorker {
    static final int MOST_RECORDS = 20; // of a transaction

    public static void main(String[] arguments) {
        try {
            work(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
        } catch (Throwable reason) {
            reason.printStackTrace();
        } finally {
            Runtime.getRuntime().halt(1); // at once: the clients would wait for a broker that may not be there
        }
    }

    static void work(String bootstrap, String source, String target, String group, String transactionalId) {
        KafkaProducer<String, String> producer = new KafkaProducer<>(Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", transactionalId,
                "transaction.timeout.ms", 20_000,
                "reconnect.backoff.max.ms", 200), new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", group,
                "isolation.level", "read_committed",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false,
                "max.poll.records", MOST_RECORDS,
                "session.timeout.ms", 2_000,
                "heartbeat.interval.ms", 300,
                "reconnect.backoff.max.ms", 200), new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(source));
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            producer.beginTransaction();
            // Offsets first and records one by one: a kill seldom finds a transaction of which the log has little.
            producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(target, record.partition(), null, "<" + record.value() + ">"));
                producer.flush();
            }
            producer.commitTransaction();
        }
    }
}
