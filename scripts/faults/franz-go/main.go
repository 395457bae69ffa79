// franz-go as a peer of `run`: produce BOOTSTRAP TOPIC COUNT, or consume BOOTSTRAP TOPIC GROUP COUNT SECONDS.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	check(err)
	return n
}

func produce(bootstrap, topic string, count int) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(30*time.Second),
		kgo.ProduceRequestTimeout(5*time.Second),
		kgo.RequestTimeoutOverhead(2*time.Second),
	)
	check(err)
	for i := 0; i < count; i++ {
		value := fmt.Sprintf("v%d", i)
		client.Produce(context.Background(), &kgo.Record{Topic: topic, Value: []byte(value)}, func(r *kgo.Record, err error) {
			if err != nil {
				fmt.Println("failed", value, err)
			} else {
				fmt.Println("acked", value, r.Offset)
			}
		})
		time.Sleep(100 * time.Millisecond)
	}
	limit, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	_ = client.Flush(limit)
	client.Close()
}

func consume(bootstrap, topic, group string, count, seconds int) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(2*time.Second),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.RequestTimeoutOverhead(5*time.Second),
	)
	check(err)
	limit, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	seen := map[string]bool{}
	for limit.Err() == nil && len(seen) < count {
		fetches := client.PollFetches(limit)
		fetches.EachError(func(_ string, _ int32, err error) { fmt.Println("fault", err) })
		fetches.EachRecord(func(r *kgo.Record) {
			seen[string(r.Value)] = true
			fmt.Println("read", string(r.Value), r.Offset)
			if err := client.CommitRecords(limit, r); err != nil {
				fmt.Println("fault commit:", err)
			}
		})
	}
	client.Close()
}

func main() {
	a := os.Args
	if a[1] == "produce" {
		produce(a[2], a[3], number(a[4]))
	} else {
		consume(a[2], a[3], a[4], number(a[5]), number(a[6]))
	}
}
