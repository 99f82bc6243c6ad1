// A client of franz-go: it makes a topic, produces numbers with the client's defaults, and reads them in a group.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	bootstrap   = flag.String("bootstrap", "", "the broker's address")
	topic       = flag.String("topic", "", "a topic that does not exist yet")
	count       = flag.Int("count", 10, "how many records")
	mechanism   = flag.String("mechanism", "", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; none without")
	user        = flag.String("user", "", "the user of the mechanism")
	password    = flag.String("password", "", "the user's password")
	authority   = flag.String("authority", "", "a PEM file with the authority of the broker's certificate: TLS is used")
	certificate = flag.String("certificate", "", "a PEM file with the client's certificate")
	key         = flag.String("key", "", "a PEM file with the key of the client's certificate")
)

func main() {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := produceAndConsume(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func produceAndConsume(ctx context.Context) error {
	options, err := connection()
	if err != nil {
		return err
	}
	producer, err := kgo.NewClient(append(options, kgo.DefaultProduceTopic(*topic))...)
	if err != nil {
		return err
	}
	defer producer.Close()
	if _, err := kadm.NewClient(producer).CreateTopic(ctx, 3, 1, nil, *topic); err != nil {
		return err
	}
	for number := range *count {
		producer.Produce(ctx, kgo.StringRecord(strconv.Itoa(number)), func(_ *kgo.Record, failure error) {
			err = errors.Join(err, failure)
		})
	}
	if err := errors.Join(producer.Flush(ctx), err); err != nil {
		return err
	}
	group := []kgo.Opt{
		kgo.ConsumeTopics(*topic), kgo.ConsumerGroup(*topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	consumer, err := kgo.NewClient(append(options, group...)...)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for received := 0; received < *count; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { fmt.Println(string(record.Value)) })
		received += fetches.NumRecords()
	}
	return consumer.CommitUncommittedOffsets(ctx)
}

// How the broker is reached, and who the client says that it is.
func connection() ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(*bootstrap), kgo.ClientID("interop")}
	switch *mechanism {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: *user, Pass: *password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: *user, Pass: *password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: *user, Pass: *password}.AsSha512Mechanism()))
	default:
		return nil, fmt.Errorf("unknown mechanism %s", *mechanism)
	}
	if *authority == "" {
		return options, nil
	}
	trusted, err := os.ReadFile(*authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(trusted) {
		return nil, fmt.Errorf("%s has no certificate", *authority)
	}
	if *certificate != "" {
		own, err := tls.LoadX509KeyPair(*certificate, *key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return append(options, kgo.DialTLSConfig(config)), nil
}
