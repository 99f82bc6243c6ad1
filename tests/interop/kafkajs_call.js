// One call of kafkajs: what to call comes from stdin as JSON, what came back goes to stdout as JSON.
// {"client": "admin", "options": {…}, "call": "createTopics", "arguments": […]}; {"base64": "…"} stands for bytes.
// "connection" may say how the broker is reached: {"sasl": {…}, "ssl": {…}}.
const { readFileSync } = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap] = process.argv.slice(2)
const bytes = (_, value) =>
  value && typeof value.base64 === 'string' ? Buffer.from(value.base64, 'base64') : value
const asked = JSON.parse(readFileSync(0, 'utf8'), bytes)

const kafka = new Kafka({
  clientId: 'interop',
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { retries: 3, initialRetryTime: 50 }, // a refusal should not take half a minute
  ...asked.connection,
})

// What needs more than one call on the same object.
const sequences = {
  async deleteTopicRecordsOf(admin, asked) {
    await admin.fetchTopicOffsets(asked.topic) // deleteTopicRecords finds no leader before something has asked
    return admin.deleteTopicRecords(asked)
  },
  async inTransaction(producer, batch) {
    const transaction = await producer.transaction()
    await transaction.send(batch)
    await transaction.commit()
    return true
  },
  async receive(consumer, topic, count) {
    const received = []
    await consumer.subscribe({ topic, fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer
        .run({
          eachMessage: async ({ partition, message }) => {
            received.push({ partition, offset: message.offset, value: message.value && message.value.toString() })
            if (received.length === count) resolve()
          },
        })
        .catch(reject)
    })
    return received
  },
}

// An error, with the errors that it carries for parts of the request, and the one it was made of.
const described = error => ({
  name: error.name,
  type: error.type || null,
  message: error.message,
  parts: [
    ...(error.errors || []),
    ...[...(error.partitions || []), ...(error.groups || [])].map(part => part.error),
    error.cause || error.originalError,
  ]
    .filter(part => part instanceof Error)
    .map(described),
})

async function main() {
  const client = kafka[asked.client](asked.options)
  try {
    await client.connect()
    const call = sequences[asked.call] ? sequences[asked.call].bind(null, client) : client[asked.call].bind(client)
    const result = await call(...asked.arguments)
    return { result: result === undefined ? null : result }
  } catch (error) {
    return { error: described(error) }
  } finally {
    await client.disconnect()
  }
}

main().then(answer => process.stdout.write(JSON.stringify(answer)))
