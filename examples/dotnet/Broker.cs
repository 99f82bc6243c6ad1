using System.Diagnostics;
using System.Net.Http.Json;
using System.Text.Json;

namespace Shop;

/// <summary>A broker for tests: <c>ottla --test</c>, a child of this process.</summary>
public sealed class Broker : IDisposable
{
    private static readonly HttpClient Http = new();
    private readonly Process process;

    /// <summary>Starts a broker with settings such as "ottla.clock=manual"; it accepts requests then.</summary>
    public Broker(params string[] settings)
    {
        var start = new ProcessStartInfo("ottla") { RedirectStandardOutput = true, UseShellExecute = false };
        foreach (var word in new[] { "--test", "--log-level", "WARNING" }.Concat(settings.SelectMany(one => new[] { "-o", one })))
        {
            start.ArgumentList.Add(word);
        }
        process = Process.Start(start)!;
        var said = JsonDocument.Parse(process.StandardOutput.ReadLine()!).RootElement;
        Bootstrap = said.GetProperty("bootstrap").GetString()!;
        Control = said.GetProperty("control").GetString()!;
    }

    public string Bootstrap { get; }

    public string Control { get; }

    /// <summary>Asks the broker for something: docs/testing.md and GET /openapi.json list what there is.</summary>
    public async Task<JsonElement> Call(string path, object arguments)
    {
        // Buffered, since the broker wants to know the length of a body.
        var content = JsonContent.Create(arguments, arguments.GetType(), new("application/json"));
        await content.LoadIntoBufferAsync();
        var response = await Http.PostAsync(Control + path, content);
        var answer = await response.Content.ReadFromJsonAsync<JsonElement>();
        return response.IsSuccessStatusCode ? answer : throw new InvalidOperationException($"{path}: {answer}");
    }

    /// <summary>Ends the broker; its data is gone then.</summary>
    public void Dispose()
    {
        using var kill = Process.Start("kill", process.Id.ToString()); // by SIGTERM; Process.Kill would leave the data
        process.WaitForExit();
    }
}
