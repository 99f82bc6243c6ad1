package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What a test can do to a program that uses Kafka's Java client: each test shows one thing. */
@Timeout(120)
class OrdersTest {
    private static final Map<String, ?> NOTHING = Map.of();

    /** One broker for all tests, empty for each. */
    private static Broker kafka;

    @BeforeAll
    static void start() throws IOException {
        kafka = Broker.start();
    }

    @BeforeEach
    void beginAnew() {
        kafka.call("/reset", NOTHING);
    }

    @AfterAll
    static void stop() {
        kafka.close();
    }

    // What a test begins with, and what it waits for

    @Test
    void theTopicHasRecordsWhenTheTestBegins() {
        seed(kafka, "lamp", "book");
        try (var consumer = consumer(kafka, Map.of())) {
            assertEquals(List.of("lamp", "book"), read(consumer, 2));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"first", "second"})
    void theBrokerIsEmptyForEachTest(String time) throws Exception {
        try (var producer = producer(kafka, Map.of())) {
            place(producer, time);
        }
        assertEquals(List.of(time), values(kafka, "orders"));
    }

    @Test
    void theTestWaitsUntilTheProgramHasReadEverything() {
        createTopic(kafka, "orders", 3, Map.of());
        seed(kafka, "lamp", "book", "chair");
        try (var consumer = consumer(kafka, Map.of())) {
            read(consumer, 3);
            consumer.commitAsync();
            consumer.poll(Duration.ZERO);
            kafka.call("/wait", Map.of("group", "shipping", "topic", "orders", "caught_up", true));
        }
    }

    @Test
    void theTestAsksWhatTheProgramHasSent() {
        try (var producer = producer(kafka, Map.of("linger.ms", 50))) {
            IntStream.range(0, 100).forEach(n -> producer.send(new ProducerRecord<>("orders", String.valueOf(n))));
        }
        var sent = kafka.call("/requests", Map.of("api", "Produce", "topic", "orders", "client_id", "shop"));
        assertTrue(sent.get("count").asInt() < 100, "orders are sent one by one");
    }

    @Test
    void aProgramThatWantsThreeReplicasRunsOnOneBroker() throws Exception {
        try (var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", kafka.bootstrap()));
                var producer = producer(kafka, Map.of("acks", "all"))) {
            admin.createTopics(List.of(new NewTopic("orders", 2, (short) 3))).all().get();
            place(producer, "lamp");
        }
        assertEquals(List.of("lamp"), values(kafka, "orders"));
    }

    // Groups

    @Test
    void aSecondConsumerGetsHalfOfThePartitions() {
        createTopic(kafka, "orders", 4, Map.of());
        try (var first = consumer(kafka, Map.of()); var second = consumer(kafka, Map.of())) {
            pollUntil(() -> first.assignment().size() == 4, first);
            pollUntil(() -> first.assignment().size() == 2 && second.assignment().size() == 2, first, second);
            kafka.call("/wait", Map.of("group", "shipping", "state", "Stable", "members", 2));
        }
    }

    @Test
    void aConsumerDiesAndAnotherTakesOver() {
        createTopic(kafka, "orders", 2, Map.of());
        try (var dead = consumer(kafka, Map.of("client.id", "dead", "group.instance.id", "dead"));
                var other = consumer(kafka, Map.of("client.id", "other"))) {
            pollUntil(() -> dead.assignment().size() == 1 && other.assignment().size() == 1, dead, other);
            // The broker hears nothing of it any more, as if its session were over.
            var rule = kafka.call("/faults/add", Map.of("client_id", "dead", "close", true)).get("rule");
            kafka.call("/groups/expire", Map.of("group", "shipping", "member", "dead"));
            kafka.call("/wait", Map.of("group", "shipping", "members", 1));
            pollUntil(() -> other.assignment().size() == 2, other);
            kafka.call("/faults/remove", Map.of("rule", rule));
        }
    }

    @Test
    void aGroupThatWasAwayForTooLongBeginsAgain() throws IOException {
        try (var kafka = Broker.start("ottla.clock=manual", "offsets.retention.minutes=5")) {
            seed(kafka, "lamp");
            try (var consumer = consumer(kafka, Map.of())) {
                read(consumer, 1);
                consumer.commitSync();
            }
            kafka.call("/wait", Map.of("group", "shipping", "state", "Empty"));
            kafka.call("/clock/advance", Map.of("ms", 20 * 60_000));
            try (var consumer = consumer(kafka, Map.of())) {
                assertEquals(List.of("lamp"), read(consumer, 1));
            }
        }
    }

    // Time

    @Test
    void ordersAreDeletedAfterAMinute() throws Exception {
        try (var kafka = Broker.start("ottla.clock=manual");
                var producer = producer(kafka, Map.of()); var consumer = consumer(kafka, Map.of())) {
            createTopic(kafka, "orders", 1, Map.of("retention.ms", "60000"));
            place(producer, "old");
            kafka.call("/clock/advance", Map.of("ms", 10 * 60_000));
            assertEquals(List.of(), values(kafka, "orders"));
            place(producer, "new");
            assertEquals(List.of("new"), read(consumer, 1));
        }
    }

    @Test
    void recordsGetTheTimeOfTheBroker() throws Exception {
        try (var kafka = Broker.start("ottla.clock=manual"); var producer = producer(kafka, Map.of())) {
            createTopic(kafka, "orders", 1, Map.of("message.timestamp.type", "LogAppendTime"));
            RecordMetadata lamp = producer.send(new ProducerRecord<>("orders", "lamp")).get();
            kafka.call("/clock/advance", Map.of("ms", 3_600_000));
            RecordMetadata book = producer.send(new ProducerRecord<>("orders", "book")).get();
            assertEquals(3_600_000, book.timestamp() - lamp.timestamp());
        }
    }

    @Test
    void aCompactedTopicKeepsTheLastValueOfEachKey() {
        createTopic(kafka, "stock", 1, Map.of("cleanup.policy", "compact"));
        try (var producer = producer(kafka, Map.of())) {
            Stream.of("lamp=3", "book=7", "lamp=2").map(change -> change.split("="))
                    .forEach(change -> producer.send(new ProducerRecord<>("stock", change[0], change[1])));
        }
        kafka.call("/jobs/compaction", NOTHING);
        assertEquals(List.of("7", "2"), values(kafka, "stock"));
    }

    // What goes wrong

    @ParameterizedTest
    @CsvSource({"true, all, 1", "false, 1, 2"})
    void anAnswerIsLost(String isIdempotent, String acks, int written) throws Exception {
        kafka.call("/faults/add", Map.of("api", "Produce", "when", "after", "close", true, "times", 1));
        try (var producer = producer(kafka, Map.of("enable.idempotence", isIdempotent, "acks", acks))) {
            place(producer, "lamp");
        }
        assertEquals(written, values(kafka, "orders").size()); // without idempotence the order is there twice
    }

    @Test
    void aFullDiskIsAnErrorOfTheDelivery() throws Exception {
        createTopic(kafka, "orders", 1, Map.of());
        try (var hasty = producer(kafka, Map.of("delivery.timeout.ms", 500, "request.timeout.ms", 500));
                var patient = producer(kafka, Map.of())) {
            var rule = kafka.call("/faults/add", Map.of("topic", "orders", "disk", "full")).get("rule");
            assertThrows(ExecutionException.class, () -> place(hasty, "lamp"));
            kafka.call("/faults/remove", Map.of("rule", rule));
            place(patient, "book");
        }
        assertEquals(List.of("book"), values(kafka, "orders"));
    }

    @Test
    void theClientTriesAgainAfterSomeErrors() throws Exception {
        createTopic(kafka, "orders", 1, Map.of());
        kafka.call("/faults/add",
                Map.of("api", "Produce", "topic", "orders", "error", "NOT_LEADER_OR_FOLLOWER", "times", 2));
        try (var producer = producer(kafka, Map.of())) {
            place(producer, "lamp");
        }
        assertEquals(List.of("lamp"), values(kafka, "orders"));
    }

    @Test
    void theProgramIsToldOtherErrors() {
        createTopic(kafka, "orders", 1, Map.of());
        kafka.call("/faults/add", Map.of("api", "Produce", "topic", "orders", "error", "TOPIC_AUTHORIZATION_FAILED"));
        try (var producer = producer(kafka, Map.of())) {
            var error = assertThrows(ExecutionException.class, () -> place(producer, "lamp"));
            assertInstanceOf(TopicAuthorizationException.class, error.getCause());
        }
    }

    @Test
    void anOrderMayBeWrittenThoughItsAnswerIsLate() throws Exception {
        createTopic(kafka, "orders", 1, Map.of());
        try (var hasty = producer(kafka, Map.of("delivery.timeout.ms", 1_000, "request.timeout.ms", 1_000))) {
            place(hasty, "book");
            kafka.call("/faults/add", Map.of("api", "Produce", "when", "after", "delay_ms", 60_000));
            var error = assertThrows(ExecutionException.class, () -> place(hasty, "lamp"));
            assertInstanceOf(TimeoutException.class, error.getCause());
        }
        kafka.call("/wait", Map.of("topic", "orders", "records", 2));
    }

    @Test
    void aThirdOfAllRequestsFailsAndNothingIsLost() throws Exception {
        createTopic(kafka, "orders", 1, Map.of());
        // A seed repeats its chance: each run loses the same answers.
        kafka.call("/faults/add", Map.of("api", "Produce", "when", "after", "share", 0.33, "seed", 1, "close", true));
        String[] orders = IntStream.range(0, 20).mapToObj(String::valueOf).toArray(String[]::new);
        try (var producer = producer(kafka, Map.of())) {
            place(producer, orders);
        }
        assertEquals(List.of(orders), values(kafka, "orders"));
    }

    @Test
    void theClientConnectsAgain() throws Exception {
        try (var producer = producer(kafka, Map.of())) {
            place(producer, "lamp");
            kafka.call("/clients/close", Map.of("client_id", "shop"));
            place(producer, "book");
        }
        assertEquals(List.of("lamp", "book"), values(kafka, "orders"));
    }

    // Transactions

    @Test
    void anAbortedOrderIsNotRead() throws Exception {
        try (var producer = producer(kafka, Map.of("transactional.id", "shop-1"));
                var consumer = consumer(kafka, Map.of("isolation.level", "read_committed"))) {
            producer.initTransactions();
            producer.beginTransaction();
            place(producer, "lamp");
            producer.abortTransaction();
            producer.beginTransaction();
            place(producer, "book");
            producer.commitTransaction();
            assertEquals(List.of("book"), read(consumer, 1));
        }
    }

    @Test
    void aTransactionThatTakesTooLongIsAborted() throws Exception {
        try (var kafka = Broker.start("ottla.clock=manual");
                var producer = producer(kafka, Map.of("transactional.id", "shop-1"))) {
            producer.initTransactions();
            producer.beginTransaction();
            place(producer, "lamp");
            kafka.call("/clock/advance", Map.of("ms", 2 * 60_000)); // transaction.timeout.ms is a minute
            assertThrows(KafkaException.class, producer::commitTransaction);
            assertEquals(List.of(), values(kafka, "orders"));
        }
    }

    // Copies

    @Test
    void theBrokerGoesBackToASnapshot() throws Exception {
        try (var producer = producer(kafka, Map.of())) {
            place(producer, "lamp");
        }
        var snapshot = kafka.call("/snapshots/take", NOTHING).get("snapshot");
        for (String order : List.of("book", "chair")) {
            try (var producer = producer(kafka, Map.of())) {
                place(producer, order);
            }
            assertEquals(List.of("lamp", order), values(kafka, "orders"));
            kafka.call("/snapshots/restore", Map.of("snapshot", snapshot));
        }
    }

    @Test
    void aMigrationIsTriedOnAFork() throws Exception {
        seed(kafka, "lamp");
        var fork = kafka.call("/fork", NOTHING);
        var other = new Broker(fork.get("bootstrap").asText(), fork.get("control").asText(), null);
        try (var consumer = consumer(other, Map.of()); var producer = producer(other, Map.of())) {
            place(producer, "two " + read(consumer, 1).get(0) + "s");
        }
        assertEquals(List.of("lamp", "two lamps"), values(other, "orders"));
        assertEquals(List.of("lamp"), values(kafka, "orders"));
    }

    // What the tests do again and again

    private static void createTopic(Broker kafka, String name, int partitions, Map<String, String> configs) {
        var topic = Map.of("name", name, "partitions", partitions, "configs", configs);
        kafka.call("/topics/create", Map.of("topics", List.of(topic)));
    }

    private static void seed(Broker kafka, String... orders) {
        var records = Stream.of(orders).map(order -> Map.of("value", order)).toList();
        kafka.call("/records/write", Map.of("topic", "orders", "records", records));
    }

    /** What a topic has, as the broker knows it. */
    private static List<String> values(Broker kafka, String topic) {
        return kafka.call("/records/read", Map.of("topic", topic)).get("records").findValuesAsText("value");
    }

    private static KafkaProducer<String, String> producer(Broker kafka, Map<String, ?> settings) {
        return new KafkaProducer<>(with(kafka, settings), new StringSerializer(), new StringSerializer());
    }

    /** A consumer of the group "shipping". */
    private static KafkaConsumer<String, String> consumer(Broker kafka, Map<String, ?> settings) {
        var all = with(kafka, Map.of("group.id", "shipping", "auto.offset.reset", "earliest",
                "enable.auto.commit", false, "heartbeat.interval.ms", 100, "session.timeout.ms", 60_000));
        all.putAll(settings);
        var consumer = new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of("orders"));
        return consumer;
    }

    private static Map<String, Object> with(Broker kafka, Map<String, ?> settings) {
        var all = new HashMap<String, Object>(Map.of("bootstrap.servers", kafka.bootstrap(), "client.id", "shop",
                "retry.backoff.ms", 20, "reconnect.backoff.ms", 20, "linger.ms", 0));
        all.putAll(settings);
        return all;
    }

    /** Sends orders one after the other. */
    private static void place(KafkaProducer<String, String> producer, String... orders) throws Exception {
        for (String order : orders) {
            producer.send(new ProducerRecord<>("orders", order)).get();
        }
    }

    private static List<String> read(KafkaConsumer<String, String> consumer, int count) {
        var found = new ArrayList<String>();
        pollUntil(() -> {
            consumer.poll(Duration.ofMillis(50)).forEach((ConsumerRecord<String, String> one) -> found.add(one.value()));
            return found.size() >= count;
        });
        return found;
    }

    @SafeVarargs
    private static void pollUntil(BooleanSupplier holds, KafkaConsumer<String, String>... consumers) {
        while (!holds.getAsBoolean()) {
            for (var consumer : consumers) {
                consumer.poll(Duration.ofMillis(50));
            }
        }
    }
}
