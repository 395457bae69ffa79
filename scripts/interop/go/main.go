// Plain franz-go, driven by the command line: see ../README.md.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

var options = map[string]string{}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	for i := 2; i+1 < len(os.Args); i += 2 {
		options[strings.TrimPrefix(os.Args[i], "--")] = os.Args[i+1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch os.Args[1] {
	case "produce":
		produce(ctx)
	case "consume":
		consume(ctx)
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: peer produce|consume [options]")
	os.Exit(2)
}

func text(name, otherwise string) string {
	if value, given := options[name]; given {
		return value
	}
	return otherwise
}

func number(name string, otherwise int) int {
	value, given := options[name]
	if !given {
		return otherwise
	}
	parsed, err := strconv.Atoi(value)
	check(err)
	return parsed
}

func check(err error) {
	if err != nil {
		emit("error", "error", err.Error())
		os.Exit(1)
	}
}

var printing sync.Mutex

// emit prints one event: pairs of names and values.
func emit(event string, fields ...any) {
	all := map[string]any{"event": event, "at": time.Now().UnixMilli()}
	for i := 0; i+1 < len(fields); i += 2 {
		all[fields[i].(string)] = fields[i+1]
	}
	line, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

// show is null, text when the bytes are UTF-8, else {"base64": ...}.
func show(value []byte) any {
	switch {
	case value == nil:
		return nil
	case utf8.Valid(value):
		return string(value)
	}
	return map[string]string{"base64": base64.StdEncoding.EncodeToString(value)}
}

func seeds() kgo.Opt { return kgo.SeedBrokers(strings.Split(text("brokers", ""), ",")...) }

func produce(ctx context.Context) {
	client, err := kgo.NewClient(seeds(), kgo.ClientID("franz-go-peer"), kgo.DefaultProduceTopic(text("topic", "")))
	check(err)
	defer client.Close()
	count, failed := number("count", 1), 0
	fill := func(name string, n int) []byte {
		value, given := options[name]
		if !given {
			return nil
		}
		if count > 1 {
			value = strings.ReplaceAll(value, "{n}", strconv.Itoa(n))
		}
		return []byte(value)
	}
	var results sync.Mutex
	for n := range count {
		client.Produce(ctx, &kgo.Record{Key: fill("key", n), Value: fill("value", n)}, func(record *kgo.Record, err error) {
			results.Lock()
			defer results.Unlock()
			if err != nil {
				failed++
				emit("error", "error", err.Error())
				return
			}
			emit("produced", "topic", record.Topic, "partition", record.Partition, "offset", strconv.FormatInt(record.Offset, 10))
		})
	}
	check(client.Flush(ctx))
	emit("done", "reason", "produced", "failed", failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func consume(ctx context.Context) {
	ready := false
	report := func(event string, partitions map[string][]int32) {
		pairs := [][]any{}
		for topic, of := range partitions {
			for _, partition := range of {
				pairs = append(pairs, []any{topic, partition})
			}
		}
		sort.Slice(pairs, func(i, j int) bool { return fmt.Sprint(pairs[i]) < fmt.Sprint(pairs[j]) })
		emit(event, "partitions", pairs)
	}
	client, err := kgo.NewClient(seeds(), kgo.ClientID("franz-go-peer"),
		kgo.ConsumerGroup(text("group", "")), kgo.ConsumeTopics(text("topic", "")), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(time.Duration(number("session-ms", 10_000))*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
			report("assigned", partitions)
			if !ready {
				member, _ := client.GroupMetadata()
				emit("ready", "group", text("group", ""), "member", member)
			}
			ready = true
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { report("revoked", partitions) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { report("lost", partitions) }))
	check(err)
	defer client.Close()
	counted, most := 0, number("max", 0)
	for most == 0 || counted < most {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			emit("done", "reason", "SIGTERM")
			return
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			emit("error", "topic", topic, "partition", partition, "error", err.Error())
		})
		for _, record := range fetches.Records() {
			headers := [][]any{}
			for _, header := range record.Headers {
				headers = append(headers, []any{header.Key, show(header.Value)})
			}
			emit("record", "topic", record.Topic, "partition", record.Partition, "offset", strconv.FormatInt(record.Offset, 10),
				"timestamp", record.Timestamp.UnixMilli(), "leader_epoch", record.LeaderEpoch,
				"key", show(record.Key), "value", show(record.Value), "headers", headers)
			if err := client.CommitRecords(ctx, record); err != nil {
				emit("error", "error", "commit: "+err.Error())
			}
			counted++
		}
	}
	emit("done", "reason", "max")
}
