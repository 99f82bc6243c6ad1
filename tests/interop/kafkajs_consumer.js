// A member of a group: what it is assigned and what it reads goes to stdout, an event a line, until SIGTERM.
// Arguments: the broker, the topic, and options of the consumer as JSON.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, options] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'interop', brokers: [bootstrap], logLevel: logLevel.ERROR })
const consumer = kafka.consumer(JSON.parse(options))
const tell = event => process.stdout.write(JSON.stringify(event) + '\n')

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => tell({ assigned: payload.memberAssignment[topic] || [] }))
consumer.on(consumer.events.COMMIT_OFFSETS, ({ payload }) => tell({ committed: payload.topics }))
consumer.on(consumer.events.CRASH, ({ payload }) => tell({ crashed: payload.error.message }))
process.on('SIGTERM', () => consumer.disconnect())

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message }) => tell({ partition, value: message.value.toString() }),
  })
}

main()
