// Three of Kafka's clients in their default configuration. Arguments: BOOTSTRAP GROUP PLAIN TRANSACTIONAL, the last two
// being topics with two partitions. What happens is printed, a line each, until the process is killed:
//
//   acknowledged PARTITION NUMBER     the producer sends 0, 1, 2 ... to each partition of PLAIN
//   failed PARTITION NUMBER REASON
//   read PARTITION NUMBER             the consumer is a member of GROUP, and reads PLAIN from its beginning
//   committed NUMBER                  the transactional producer writes each number into both partitions of TRANSACTIONAL;
//   aborted NUMBER                    every third transaction is aborted
//   unknown NUMBER REASON             nobody has said how the transaction ended: another producer takes over

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class FailOverClients {
    static final int PARTITIONS = 2;

    public static void main(String[] arguments) {
        String bootstrap = arguments[0];
        inThread(() -> produce(bootstrap, arguments[2]));
        inThread(() -> consume(bootstrap, arguments[1], arguments[2]));
        inThread(() -> transact(bootstrap, arguments[3]));
    }

    static void inThread(Runnable work) {
        new Thread(() -> {
            try {
                work.run();
            } catch (Throwable reason) {
                reason.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }).start();
    }

    static void tell(String format, Object... values) {
        System.out.println(String.format(format, values));
    }

    static void pause(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException reason) {
            throw new IllegalStateException(reason);
        }
    }

    static void produce(String bootstrap, String topic) {
        KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer());
        for (int number = 0;; number++) {
            for (int partition = 0; partition < PARTITIONS; partition++) {
                int to = partition, sent = number;
                producer.send(new ProducerRecord<>(topic, to, null, "" + sent), (metadata, problem) -> {
                    if (problem == null) {
                        tell("acknowledged %d %d", to, sent);
                    } else {
                        tell("failed %d %d %s", to, sent, problem);
                    }
                });
            }
            pause(10);
        }
    }

    static void consume(String bootstrap, String group, String topic) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", bootstrap, "group.id", group, "auto.offset.reset", "earliest"),
                new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        while (true) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                tell("read %d %s", record.partition(), record.value());
            }
        }
    }

    static void transact(String bootstrap, String topic) {
        KafkaProducer<String, String> producer = begun(bootstrap);
        for (int number = 0;; number++) {
            boolean isAborted = number % 3 == 2;
            try {
                producer.beginTransaction();
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, "" + number));
                }
                end(producer, isAborted);
                tell("%s %d", isAborted ? "aborted" : "committed", number);
            } catch (ApplicationRecoverableException reason) {
                tell("unknown %d %s", number, reason);
                producer.close(Duration.ZERO);
                producer = begun(bootstrap);
            } catch (KafkaException reason) {
                producer.abortTransaction();
                tell("aborted %d %s", number, reason);
            }
            pause(10);
        }
    }

    static KafkaProducer<String, String> begun(String bootstrap) {
        KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap, "transactional.id", "through-fail-overs"),
                new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    static void end(KafkaProducer<String, String> producer, boolean isAborted) {
        while (true) {
            try {
                if (isAborted) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                return;
            } catch (TimeoutException reason) { // which is to be tried again
                tell("slow %s", reason);
            }
        }
    }
}
