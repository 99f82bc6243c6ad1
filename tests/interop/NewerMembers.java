// Members of a consumer group of the newer protocol, or of a share group, that come and go: Kafka's consumers as they are
// by default, but for the mode of acknowledgement. Arguments: KIND BOOTSTRAP TOPIC GROUP MEMBERS, with the kind `consumer`
// or `share`. Each member stays for some seconds, and another takes its place. What happens is printed, a line each, until
// the process is killed; TIME is in microseconds of the system's clock:
//
//   read TIME PARTITION VALUE         a poll has returned the record
//   done TIME PARTITION VALUE         its offset is committed, or it is accepted
//   member NUMBER                     a member has begun

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class NewerMembers {
    static final AtomicInteger MEMBERS = new AtomicInteger();

    public static void main(String[] arguments) {
        boolean isShare = arguments[0].equals("share");
        for (int place = 0; place < Integer.parseInt(arguments[4]); place++) {
            Random chance = new Random(place);
            new Thread(() -> {
                try {
                    while (true) {
                        System.out.println("member " + MEMBERS.incrementAndGet());
                        Instant end = Instant.now().plusMillis(2000 + chance.nextInt(6000));
                        if (isShare) {
                            share(arguments, end);
                        } else {
                            consume(arguments, end);
                        }
                    }
                } catch (Throwable reason) {
                    reason.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            }).start();
        }
    }

    static void tell(String what, Iterable<ConsumerRecord<String, String>> records) {
        long now = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        for (ConsumerRecord<String, String> record : records) {
            System.out.println(what + " " + now + " " + record.partition() + " " + record.value());
        }
    }

    static void consume(String[] arguments, Instant end) {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[1], "group.id", arguments[3],
                "group.protocol", "consumer", "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[2]));
            while (Instant.now().isBefore(end)) {
                var records = consumer.poll(Duration.ofMillis(200));
                tell("read", records);
                try {
                    consumer.commitSync();
                    tell("done", records);
                } catch (KafkaException reason) {
                    System.out.println("unknown " + reason);
                }
            }
        }
    }

    static void share(String[] arguments, Instant end) {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[1], "group.id", arguments[3],
                "share.acknowledgement.mode", "explicit");
        try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[2]));
            while (Instant.now().isBefore(end)) {
                var records = consumer.poll(Duration.ofMillis(200));
                tell("read", records);
                records.forEach(record -> consumer.acknowledge(record, AcknowledgeType.ACCEPT));
                var refused = new ArrayList<Integer>();
                consumer.commitSync().forEach((partition, problem) -> {
                    if (problem.isPresent()) {
                        refused.add(partition.partition());
                        System.out.println("unknown " + problem.get());
                    }
                });
                var accepted = new ArrayList<ConsumerRecord<String, String>>();
                records.forEach(record -> accepted.add(record));
                accepted.removeIf(record -> refused.contains(record.partition()));
                tell("done", accepted);
            }
        }
    }
}
