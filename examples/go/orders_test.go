// What a test can do to a program that uses franz-go: each test shows one thing.
package shop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx    = context.Background()
	shared *Broker
)

func TestMain(m *testing.M) {
	var err error
	if shared, err = StartBroker(); err != nil {
		panic(err)
	}
	code := m.Run()
	shared.Stop()
	os.Exit(code)
}

// kafka is the broker of all tests, empty for each.
func kafka(t *testing.T) *Broker {
	shared.Call(t, "/reset", JSON{})
	return shared
}

// brokerOfItsOwn is a broker whose clock the test moves.
func brokerOfItsOwn(t *testing.T, settings ...string) *Broker {
	broker, err := StartBroker(append(settings, "ottla.clock=manual")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	return broker
}

func createTopic(t *testing.T, kafka *Broker, name string, partitions int, configs JSON) {
	topic := JSON{"name": name, "partitions": partitions, "configs": configs}
	kafka.Call(t, "/topics/create", JSON{"topics": []JSON{topic}})
}

func seed(t *testing.T, kafka *Broker, orders ...string) {
	records := []JSON{}
	for _, order := range orders {
		records = append(records, JSON{"value": order})
	}
	kafka.Call(t, "/records/write", JSON{"topic": "orders", "records": records})
}

// values is what the topic has, as the broker knows it.
func values(t *testing.T, kafka *Broker, topic string) []string {
	found := []string{}
	for _, record := range kafka.Call(t, "/records/read", JSON{"topic": topic})["records"].([]any) {
		found = append(found, fmt.Sprint(record.(JSON)["value"]))
	}
	return found
}

// fail lets requests go wrong, and returns the number of the rule.
func fail(t *testing.T, kafka *Broker, rule JSON) any {
	return kafka.Call(t, "/faults/add", rule)["rule"]
}

func client(t *testing.T, kafka *Broker, options ...kgo.Opt) *kgo.Client {
	quick := kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })
	usual := []kgo.Opt{
		kgo.SeedBrokers(kafka.Bootstrap), kgo.ClientID("shop"), kgo.AllowAutoTopicCreation(), quick,
		kgo.MetadataMinAge(10 * time.Millisecond), // else it looks for a new topic every few seconds
	}
	made, err := kgo.NewClient(append(usual, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

// consumer is a member of the group "shipping".
func consumer(t *testing.T, kafka *Broker, options ...kgo.Opt) *kgo.Client {
	group := []kgo.Opt{
		kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.SessionTimeout(time.Minute),
	}
	return client(t, kafka, append(group, options...)...)
}

// member is a consumer that goes on by itself, and counts its partitions.
func member(t *testing.T, kafka *Broker, name string) *atomic.Int32 {
	var count atomic.Int32
	change := func(by int32) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			count.Add(by * int32(len(partitions["orders"])))
		}
	}
	polling := consumer(t, kafka, kgo.ClientID(name), kgo.InstanceID(name), kgo.OnPartitionsAssigned(change(1)),
		kgo.OnPartitionsRevoked(change(-1)), kgo.OnPartitionsLost(change(-1)))
	go func() {
		for !polling.PollFetches(ctx).IsClientClosed() {
		}
	}()
	return &count
}

func place(producer *kgo.Client, orders ...string) error {
	for _, order := range orders {
		record := &kgo.Record{Topic: "orders", Value: []byte(order)}
		if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func read(consumer *kgo.Client, count int) (found []string) {
	for len(found) < count {
		consumer.PollRecords(ctx, count-len(found)).EachRecord(func(record *kgo.Record) {
			found = append(found, string(record.Value))
		})
	}
	return found
}

func until(t *testing.T, what string, holds func() bool) {
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in a minute: ", what)
		}
	}
}

func mustBe[T comparable](t *testing.T, found, expected []T) {
	t.Helper()
	if !slices.Equal(found, expected) {
		t.Fatal("found", found, "expected", expected)
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What a test begins with, and what it waits for

func TestTheTopicHasRecordsWhenTheTestBegins(t *testing.T) {
	kafka := kafka(t)
	seed(t, kafka, "lamp", "book")
	mustBe(t, read(consumer(t, kafka), 2), []string{"lamp", "book"})
}

func TestTheBrokerIsEmptyForEachTest(t *testing.T) {
	for _, time := range []string{"first", "second"} {
		t.Run(time, func(t *testing.T) {
			kafka := kafka(t)
			mustDo(t, place(client(t, kafka), time))
			mustBe(t, values(t, kafka, "orders"), []string{time})
		})
	}
}

func TestTheTestWaitsUntilTheProgramHasReadEverything(t *testing.T) {
	kafka := kafka(t)
	createTopic(t, kafka, "orders", 3, JSON{})
	seed(t, kafka, "lamp", "book", "chair")
	shipping := consumer(t, kafka)
	go func() {
		read(shipping, 3)
		_ = shipping.CommitUncommittedOffsets(ctx)
	}()
	kafka.Call(t, "/wait", JSON{"group": "shipping", "topic": "orders", "caught_up": true})
}

func TestTheTestAsksWhatTheProgramHasSent(t *testing.T) {
	kafka := kafka(t)
	producer := client(t, kafka, kgo.ProducerLinger(50*time.Millisecond))
	for number := range 100 {
		producer.Produce(ctx, &kgo.Record{Topic: "orders", Value: []byte(strconv.Itoa(number))}, nil)
	}
	mustDo(t, producer.Flush(ctx))
	sent := kafka.Call(t, "/requests", JSON{"api": "Produce", "topic": "orders", "client_id": "shop"})["count"].(float64)
	if sent >= 100 {
		t.Fatal("orders are sent one by one")
	}
}

func TestAProgramThatWantsThreeReplicasRunsOnOneBroker(t *testing.T) {
	kafka := kafka(t)
	admin := kadm.NewClient(client(t, kafka))
	_, err := admin.CreateTopic(ctx, 2, 3, nil, "orders")
	mustDo(t, err)
	mustDo(t, place(client(t, kafka, kgo.RequiredAcks(kgo.AllISRAcks())), "lamp"))
}

// Groups

func TestASecondConsumerGetsHalfOfThePartitions(t *testing.T) {
	kafka := kafka(t)
	createTopic(t, kafka, "orders", 4, JSON{})
	first := member(t, kafka, "first")
	until(t, "all partitions", func() bool { return first.Load() == 4 })
	second := member(t, kafka, "second")
	until(t, "half of them", func() bool { return first.Load() == 2 && second.Load() == 2 })
	kafka.Call(t, "/wait", JSON{"group": "shipping", "state": "Stable", "members": 2})
}

func TestAConsumerDiesAndAnotherTakesOver(t *testing.T) {
	kafka := kafka(t)
	createTopic(t, kafka, "orders", 2, JSON{})
	dead, other := member(t, kafka, "dead"), member(t, kafka, "other")
	until(t, "a partition each", func() bool { return dead.Load() == 1 && other.Load() == 1 })
	rule := fail(t, kafka, JSON{"client_id": "dead", "close": true})             // the broker hears nothing of it any more
	kafka.Call(t, "/groups/expire", JSON{"group": "shipping", "member": "dead"}) // as if its session were over
	kafka.Call(t, "/wait", JSON{"group": "shipping", "members": 1})
	until(t, "both partitions", func() bool { return other.Load() == 2 })
	kafka.Call(t, "/faults/remove", JSON{"rule": rule})
}

func TestAGroupThatWasAwayForTooLongBeginsAgain(t *testing.T) {
	kafka := brokerOfItsOwn(t, "offsets.retention.minutes=5")
	seed(t, kafka, "lamp")
	shipping := consumer(t, kafka)
	read(shipping, 1)
	mustDo(t, shipping.CommitUncommittedOffsets(ctx))
	shipping.Close()
	kafka.Call(t, "/wait", JSON{"group": "shipping", "state": "Empty"})
	kafka.Call(t, "/clock/advance", JSON{"ms": 20 * 60_000})
	mustBe(t, read(consumer(t, kafka), 1), []string{"lamp"})
}

// Time

func TestOrdersAreDeletedAfterAMinute(t *testing.T) {
	kafka := brokerOfItsOwn(t)
	createTopic(t, kafka, "orders", 1, JSON{"retention.ms": "60000"})
	producer := client(t, kafka)
	mustDo(t, place(producer, "old"))
	kafka.Call(t, "/clock/advance", JSON{"ms": 10 * 60_000})
	mustBe(t, values(t, kafka, "orders"), nil)
	mustDo(t, place(producer, "new"))
	mustBe(t, read(consumer(t, kafka), 1), []string{"new"})
}

func TestRecordsGetTheTimeOfTheBroker(t *testing.T) {
	kafka := brokerOfItsOwn(t)
	createTopic(t, kafka, "orders", 1, JSON{"message.timestamp.type": "LogAppendTime"})
	producer := client(t, kafka)
	mustDo(t, place(producer, "lamp"))
	kafka.Call(t, "/clock/advance", JSON{"ms": 3_600_000})
	mustDo(t, place(producer, "book"))
	records := consumer(t, kafka).PollRecords(ctx, 2).Records()
	if passed := records[1].Timestamp.Sub(records[0].Timestamp); passed != time.Hour {
		t.Fatal(passed)
	}
}

func TestACompactedTopicKeepsTheLastValueOfEachKey(t *testing.T) {
	kafka := kafka(t)
	createTopic(t, kafka, "stock", 1, JSON{"cleanup.policy": "compact"})
	producer := client(t, kafka, kgo.DefaultProduceTopic("stock"))
	for _, change := range [][2]string{{"lamp", "3"}, {"book", "7"}, {"lamp", "2"}} {
		mustDo(t, producer.ProduceSync(ctx, kgo.KeyStringRecord(change[0], change[1])).FirstErr())
	}
	kafka.Call(t, "/jobs/compaction", JSON{})
	mustBe(t, values(t, kafka, "stock"), []string{"7", "2"})
}

// What goes wrong

func TestAnAnswerIsLost(t *testing.T) {
	careless := []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())}
	for name, example := range map[string]struct {
		options []kgo.Opt
		written []string
	}{
		"idempotent": {nil, []string{"lamp"}},
		"not":        {careless, []string{"lamp", "lamp"}},
	} {
		t.Run(name, func(t *testing.T) {
			kafka := kafka(t)
			fail(t, kafka, JSON{"api": "Produce", "when": "after", "close": true, "times": 1})
			mustDo(t, place(client(t, kafka, example.options...), "lamp"))
			mustBe(t, values(t, kafka, "orders"), example.written)
		})
	}
}

func TestAFullDiskIsAnErrorOfTheDelivery(t *testing.T) {
	kafka := kafka(t)
	createTopic(t, kafka, "orders", 1, JSON{})
	producer := client(t, kafka, kgo.RecordRetries(2))
	rule := fail(t, kafka, JSON{"topic": "orders", "disk": "full"})
	if err := place(producer, "lamp"); err == nil {
		t.Fatal("the order was taken")
	}
	kafka.Call(t, "/faults/remove", JSON{"rule": rule})
	mustDo(t, place(producer, "book"))
	mustBe(t, values(t, kafka, "orders"), []string{"book"})
}

func TestTheClientTriesAgainAfterSomeErrors(t *testing.T) {
	kafka := kafka(t)
	createTopic(t, kafka, "orders", 1, JSON{})
	fail(t, kafka, JSON{"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2})
	mustDo(t, place(client(t, kafka), "lamp"))
	mustBe(t, values(t, kafka, "orders"), []string{"lamp"})
}

func TestTheProgramIsToldOtherErrors(t *testing.T) {
	kafka := kafka(t)
	createTopic(t, kafka, "orders", 1, JSON{})
	fail(t, kafka, JSON{"api": "Produce", "topic": "orders", "error": "TOPIC_AUTHORIZATION_FAILED"})
	if err := place(client(t, kafka), "lamp"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Fatal(err)
	}
}

func TestAnOrderMayBeWrittenThoughItsAnswerIsLate(t *testing.T) {
	kafka := kafka(t)
	createTopic(t, kafka, "orders", 1, JSON{})
	hasty := client(t, kafka, kgo.AllowIdempotentProduceCancellation())
	mustDo(t, place(hasty, "book"))
	fail(t, kafka, JSON{"api": "Produce", "when": "after", "delay_ms": 60_000})
	soon, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	order := &kgo.Record{Topic: "orders", Value: []byte("lamp")}
	if err := hasty.ProduceSync(soon, order).FirstErr(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	kafka.Call(t, "/wait", JSON{"topic": "orders", "records": 2})
}

func TestAThirdOfAllRequestsFailsAndNothingIsLost(t *testing.T) {
	kafka := kafka(t)
	createTopic(t, kafka, "orders", 1, JSON{})
	// A seed repeats its chance: each run loses the same answers.
	fail(t, kafka, JSON{"api": "Produce", "when": "after", "share": 0.33, "seed": 1, "error": "REQUEST_TIMED_OUT"})
	orders := []string{}
	for number := range 20 {
		orders = append(orders, strconv.Itoa(number))
	}
	mustDo(t, place(client(t, kafka), orders...))
	mustBe(t, values(t, kafka, "orders"), orders)
}

func TestTheClientConnectsAgain(t *testing.T) {
	kafka := kafka(t)
	producer := client(t, kafka)
	mustDo(t, place(producer, "lamp"))
	kafka.Call(t, "/clients/close", JSON{"client_id": "shop"})
	mustDo(t, place(producer, "book"))
	mustBe(t, values(t, kafka, "orders"), []string{"lamp", "book"})
}

// Transactions

func TestAnAbortedOrderIsNotRead(t *testing.T) {
	kafka := kafka(t)
	producer := client(t, kafka, kgo.TransactionalID("shop-1"))
	for _, order := range []string{"lamp", "book"} {
		mustDo(t, producer.BeginTransaction())
		mustDo(t, place(producer, order))
		mustDo(t, producer.EndTransaction(ctx, kgo.TransactionEndTry(order == "book")))
	}
	mustBe(t, read(consumer(t, kafka, kgo.FetchIsolationLevel(kgo.ReadCommitted())), 1), []string{"book"})
}

func TestATransactionThatTakesTooLongIsAborted(t *testing.T) {
	kafka := brokerOfItsOwn(t)
	producer := client(t, kafka, kgo.TransactionalID("shop-1"), kgo.TransactionTimeout(time.Minute))
	mustDo(t, producer.BeginTransaction())
	mustDo(t, place(producer, "lamp"))
	kafka.Call(t, "/clock/advance", JSON{"ms": 2 * 60_000})
	if err := producer.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Fatal("the transaction was committed")
	}
	mustBe(t, values(t, kafka, "orders"), nil)
}

// Copies

func TestTheBrokerGoesBackToASnapshot(t *testing.T) {
	kafka := kafka(t)
	mustDo(t, place(client(t, kafka), "lamp"))
	snapshot := kafka.Call(t, "/snapshots/take", JSON{})["snapshot"]
	for _, order := range []string{"book", "chair"} {
		mustDo(t, place(client(t, kafka), order))
		mustBe(t, values(t, kafka, "orders"), []string{"lamp", order})
		kafka.Call(t, "/snapshots/restore", JSON{"snapshot": snapshot})
	}
}

func TestAMigrationIsTriedOnAFork(t *testing.T) {
	kafka := kafka(t)
	seed(t, kafka, "lamp")
	fork := kafka.Call(t, "/fork", JSON{})
	other := &Broker{Bootstrap: fork["bootstrap"].(string), Control: fork["control"].(string)}
	mustDo(t, place(client(t, other), "two "+read(consumer(t, other), 1)[0]+"s"))
	mustBe(t, values(t, other, "orders"), []string{"lamp", "two lamps"})
	mustBe(t, values(t, kafka, "orders"), []string{"lamp"})
}
