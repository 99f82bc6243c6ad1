using Confluent.Kafka;
using Xunit;

namespace Shop;

public class OrdersTest
{
    [Fact]
    public async Task AnAnswerIsLostAndTheOrderIsThereOnce()
    {
        using var kafka = new Broker();
        await kafka.Call("/faults/add", new { api = "Produce", when = "after", close = true, times = 1 });
        var config = new ProducerConfig { BootstrapServers = kafka.Bootstrap, EnableIdempotence = true };
        using var producer = new ProducerBuilder<Null, string>(config).Build();
        await producer.ProduceAsync("orders", new Message<Null, string> { Value = "lamp" });
        var records = (await kafka.Call("/records/read", new { topic = "orders" })).GetProperty("records");
        Assert.Equal(1, records.GetArrayLength());
    }
}
