package shop

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// JSON is an object, as the broker takes and answers it.
type JSON = map[string]any

// Broker is a broker for tests: `ottla --test`, a child of this process.
type Broker struct {
	Bootstrap string `json:"bootstrap"`
	Control   string `json:"control"`
	process   *exec.Cmd
}

// StartBroker starts a broker with settings such as "ottla.clock=manual", and returns once it accepts requests.
func StartBroker(settings ...string) (*Broker, error) {
	words := []string{"--test", "--log-level", "WARNING"}
	for _, setting := range settings {
		words = append(words, "-o", setting)
	}
	broker := &Broker{process: exec.Command("ottla", words...)}
	broker.process.Stderr = os.Stderr
	output, err := broker.process.StdoutPipe()
	if err == nil {
		err = broker.process.Start()
	}
	if err == nil {
		err = json.NewDecoder(output).Decode(broker)
	}
	return broker, err
}

// Stop ends the broker. Its data is gone then.
func (broker *Broker) Stop() {
	_ = broker.process.Process.Signal(syscall.SIGTERM)
	_ = broker.process.Wait()
}

// Call asks the broker for something: docs/testing.md and GET /openapi.json list what there is.
func (broker *Broker) Call(t testing.TB, path string, arguments JSON) JSON {
	t.Helper()
	body, _ := json.Marshal(arguments)
	response, err := http.Post(broker.Control+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer JSON
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(path, arguments, answer, err)
	}
	return answer
}
