// What a test can do to a program that uses kafkajs: each test shows one thing.

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";

import kafkajs from "kafkajs";

import { Broker } from "./broker.js";

let shared; // one broker for all tests, empty for each
const toDisconnect = [];

before(async () => {
  shared = await Broker.start();
});

after(() => shared.stop());

/** A test with clients, which are disconnected when it is over. */
function it(name, run, kafkaOf = async () => shared) {
  test(name, { timeout: 60_000 }, async () => {
    const kafka = await kafkaOf();
    await kafka.call("/reset");
    try {
      await run(kafka);
    } finally {
      await Promise.all(toDisconnect.splice(0).map((client) => client.disconnect()));
      if (kafka !== shared) {
        await kafka.stop();
      }
    }
  });
}

/** A test with a broker of its own, whose clock the test moves. */
function itMovesTheClock(name, run, settings = {}) {
  it(name, run, () => Broker.start({ "ottla.clock": "manual", ...settings }));
}

function client(broker, { clientId = "shop", retries = 20, requestTimeout = 30_000 } = {}) {
  const retry = { initialRetryTime: 20, maxRetryTime: 100, retries };
  return new kafkajs.Kafka({
    clientId, requestTimeout, retry, brokers: [broker.bootstrap], logLevel: kafkajs.logLevel.NOTHING,
  });
}

async function producerOf(broker, { idempotent = true, transactionalId, transactionTimeout, ...options } = {}) {
  const settings = { idempotent, maxInFlightRequests: 1, transactionalId, transactionTimeout };
  const made = client(broker, options).producer({ ...settings, createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
  await made.connect();
  toDisconnect.push(made);
  return made;
}

/** Send orders one after the other, by a producer or within a transaction. */
async function place(producer, ...orders) {
  for (const value of orders) {
    await producer.send({ topic: "orders", messages: [{ value }] });
  }
}

/** A member of the group "shipping", which goes on by itself. */
async function member(broker, clientId, eachMessage = async () => {}) {
  const made = client(broker, { clientId }).consumer({
    groupId: "shipping", heartbeatInterval: 50, maxWaitTimeInMs: 50, sessionTimeout: 60_000,
    // A consumer that fails while it is disconnected would be started again by kafkajs, and reach into the next test.
    retry: { restartOnFailure: async () => false },
  });
  made.on("consumer.group_join", ({ payload }) => {
    made.partitions = payload.memberAssignment.orders ?? [];
  });
  toDisconnect.push(made);
  await made.connect();
  await made.subscribe({ topics: ["orders"], fromBeginning: true });
  await made.run({ autoCommit: false, eachMessage });
  return made;
}

/** The first orders that a consumer of the group gets. It commits all that it has read. */
async function read(broker, count) {
  const found = [];
  const consumer = await member(broker, "reader", async ({ topic, partition, message }) => {
    found.push(message.value.toString());
    await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }]);
  });
  await until(() => found.length >= count);
  return found;
}

async function until(holds) {
  while (!(await holds())) {
    await setTimeout(10);
  }
}

/** What the topic has, as the broker knows it. */
async function values(broker, topic = "orders") {
  return (await broker.call("/records/read", { topic })).records.map((record) => record.value);
}

function createTopic(broker, name, partitions = 1, configs = {}) {
  return broker.call("/topics/create", { topics: [{ name, partitions, configs }] });
}

function seed(broker, ...orders) {
  return broker.call("/records/write", { topic: "orders", records: orders.map((value) => ({ value })) });
}

describe("what a test begins with, and what it waits for", () => {
  it("begins with records in the topic", async (kafka) => {
    await seed(kafka, "lamp", "book");
    assert.deepEqual(await read(kafka, 2), ["lamp", "book"]);
  });

  for (const time of ["first", "second"]) {
    it(`begins with an empty broker the ${time} time`, async (kafka) => {
      await place(await producerOf(kafka), time);
      assert.deepEqual(await values(kafka), [time]);
    });
  }

  it("waits until the program has read everything", async (kafka) => {
    await createTopic(kafka, "orders", 3);
    await seed(kafka, "lamp", "book", "chair");
    await read(kafka, 3);
    await kafka.call("/wait", { group: "shipping", topic: "orders", caught_up: true });
  });

  it("asks what the program has sent", async (kafka) => {
    const messages = Array.from({ length: 100 }, (_, number) => ({ value: String(number) }));
    await (await producerOf(kafka)).send({ topic: "orders", messages });
    const { count } = await kafka.call("/requests", { api: "Produce", topic: "orders", client_id: "shop" });
    assert.ok(count < 100, "orders are sent one by one");
  });

  it("gives three replicas to a program that wants them", async (kafka) => {
    const admin = client(kafka).admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic: "orders", numPartitions: 2, replicationFactor: 3 }] });
    await admin.disconnect();
    await place(await producerOf(kafka), "lamp");
    assert.deepEqual(await values(kafka), ["lamp"]);
  });
});

describe("groups", () => {
  it("gives a second consumer half of the partitions", async (kafka) => {
    await createTopic(kafka, "orders", 4);
    const first = await member(kafka, "first");
    await until(() => first.partitions?.length === 4);
    const second = await member(kafka, "second");
    await until(() => first.partitions.length === 2 && second.partitions?.length === 2);
    await kafka.call("/wait", { group: "shipping", state: "Stable", members: 2 });
  });

  it("lets a consumer die, and another take over", async (kafka) => {
    await createTopic(kafka, "orders", 2);
    const dead = await member(kafka, "dead");
    const other = await member(kafka, "other");
    await until(() => dead.partitions?.length === 1 && other.partitions?.length === 1);
    const { group } = await kafka.call("/wait", { group: "shipping", state: "Stable", members: 2 });
    const { rule } = await kafka.call("/faults/add", { client_id: "dead", close: true }); // nothing is heard of it
    const { member: id } = group.members.find((one) => one.client_id === "dead");
    await kafka.call("/groups/expire", { group: "shipping", member: id }); // as if its session were over
    await kafka.call("/wait", { group: "shipping", members: 1 });
    await until(() => other.partitions.length === 2);
    await kafka.call("/faults/remove", { rule });
  });

  itMovesTheClock("forgets the offsets of a group that was away for too long", async (kafka) => {
    await seed(kafka, "lamp");
    assert.deepEqual(await read(kafka, 1), ["lamp"]);
    await Promise.all(toDisconnect.splice(0).map((client) => client.disconnect()));
    await kafka.call("/wait", { group: "shipping", topic: "orders", state: "Empty", caught_up: true });
    await kafka.call("/clock/advance", { ms: 20 * 60_000 });
    assert.deepEqual(await read(kafka, 1), ["lamp"]);
  }, { "offsets.retention.minutes": 5 });
});

describe("time", () => {
  itMovesTheClock("deletes orders after a minute", async (kafka) => {
    await createTopic(kafka, "orders", 1, { "retention.ms": "60000" });
    const producer = await producerOf(kafka);
    await place(producer, "old");
    await kafka.call("/clock/advance", { ms: 10 * 60_000 });
    assert.deepEqual(await values(kafka), []);
    await place(producer, "new");
    assert.deepEqual(await read(kafka, 1), ["new"]);
  });

  itMovesTheClock("gives records the time of the broker", async (kafka) => {
    await createTopic(kafka, "orders", 1, { "message.timestamp.type": "LogAppendTime" });
    const producer = await producerOf(kafka);
    const send = async () => (await producer.send({ topic: "orders", messages: [{ value: "lamp" }] }))[0].logAppendTime;
    const before = Number(await send());
    await kafka.call("/clock/advance", { ms: 3_600_000 });
    assert.equal(Number(await send()) - before, 3_600_000);
  });

  it("compacts a topic", async (kafka) => {
    await createTopic(kafka, "stock", 1, { "cleanup.policy": "compact" });
    const producer = await producerOf(kafka);
    for (const [key, value] of [["lamp", "3"], ["book", "7"], ["lamp", "2"], ["book", null]]) {
      await producer.send({ topic: "stock", messages: [{ key, value }] });
    }
    await kafka.call("/jobs/compaction");
    assert.deepEqual(await values(kafka, "stock"), ["2", null]);
  });
});

describe("what goes wrong", () => {
  for (const [idempotent, written] of [[true, ["lamp"]], [false, ["lamp", "lamp"]]]) {
    it(`loses an answer of a producer that is ${idempotent ? "" : "not "}idempotent`, async (kafka) => {
      await kafka.call("/faults/add", { api: "Produce", when: "after", close: true, times: 1 });
      await place(await producerOf(kafka, { idempotent }), "lamp");
      assert.deepEqual(await values(kafka), written);
    });
  }

  it("has a full disk", async (kafka) => {
    await createTopic(kafka, "orders");
    const producer = await producerOf(kafka, { retries: 2, idempotent: false });
    const { rule } = await kafka.call("/faults/add", { topic: "orders", disk: "full" });
    await assert.rejects(place(producer, "lamp"), /Disk error/);
    await kafka.call("/faults/remove", { rule });
    await place(producer, "book");
    assert.deepEqual(await values(kafka), ["book"]);
  });

  it("refuses with an error after which the client tries again", async (kafka) => {
    await createTopic(kafka, "orders");
    await kafka.call("/faults/add", { api: "Produce", topic: "orders", error: "NOT_LEADER_OR_FOLLOWER", times: 2 });
    await place(await producerOf(kafka), "lamp");
    assert.deepEqual(await values(kafka), ["lamp"]);
  });

  it("refuses with an error that the program is told", async (kafka) => {
    await createTopic(kafka, "orders");
    await kafka.call("/faults/add", { api: "Produce", topic: "orders", error: "TOPIC_AUTHORIZATION_FAILED" });
    await assert.rejects(place(await producerOf(kafka), "lamp"), { type: "TOPIC_AUTHORIZATION_FAILED" });
  });

  it("writes an order though its answer is late", async (kafka) => {
    await createTopic(kafka, "orders");
    const hasty = await producerOf(kafka, { requestTimeout: 1_000, retries: 0, idempotent: false });
    await place(hasty, "book");
    await kafka.call("/faults/add", { api: "Produce", when: "after", delay_ms: 60_000 });
    await assert.rejects(place(hasty, "lamp"), /timed out/);
    await kafka.call("/wait", { topic: "orders", records: 2 });
  });

  it("fails a third of all requests, and nothing is lost", async (kafka) => {
    await createTopic(kafka, "orders");
    // A seed repeats its chance: each run loses the same answers.
    await kafka.call("/faults/add", { api: "Produce", when: "after", share: 0.33, seed: 1, close: true });
    const orders = Array.from({ length: 20 }, (_, number) => String(number));
    await place(await producerOf(kafka), ...orders);
    assert.deepEqual(await values(kafka), orders);
  });

  it("closes connections, and the client connects again", async (kafka) => {
    const producer = await producerOf(kafka);
    await place(producer, "lamp");
    await kafka.call("/clients/close", { client_id: "shop" });
    await place(producer, "book");
    assert.deepEqual(await values(kafka), ["lamp", "book"]);
  });
});

describe("transactions", () => {
  it("does not show an aborted order", async (kafka) => {
    await createTopic(kafka, "orders");
    const producer = await producerOf(kafka, { transactionalId: "shop-1" });
    for (const [order, end] of [["lamp", "abort"], ["book", "commit"]]) {
      const transaction = await producer.transaction();
      await place(transaction, order);
      await transaction[end]();
    }
    assert.deepEqual(await read(kafka, 1), ["book"]);
  });

  itMovesTheClock("aborts a transaction that takes too long", async (kafka) => {
    await createTopic(kafka, "orders");
    const producer = await producerOf(kafka, { transactionalId: "shop-1", transactionTimeout: 60_000, retries: 2 });
    const transaction = await producer.transaction();
    await place(transaction, "lamp");
    await kafka.call("/clock/advance", { ms: 2 * 60_000 });
    await assert.rejects(transaction.commit());
    assert.deepEqual(await values(kafka), []);
  });
});

describe("copies", () => {
  it("goes back to a snapshot", async (kafka) => {
    await place(await producerOf(kafka), "lamp");
    const { snapshot } = await kafka.call("/snapshots/take");
    for (const order of ["book", "chair"]) {
      await place(await producerOf(kafka), order);
      assert.deepEqual(await values(kafka), ["lamp", order]);
      await kafka.call("/snapshots/restore", { snapshot });
    }
  });

  it("tries a migration on a fork", async (kafka) => {
    await seed(kafka, "lamp");
    const other = new Broker(await kafka.call("/fork"));
    const [order] = await read(other, 1);
    await place(await producerOf(other), `two ${order}s`);
    assert.deepEqual(await values(other), ["lamp", "two lamps"]);
    assert.deepEqual(await values(kafka), ["lamp"]);
  });
});
