// Command etcd-load writes values to etcd from many clients over its official client, checks every reply, and prints one
// JSON document of the form that `millrace bench http --json` has.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	requestTimeout = 30 * time.Second
	auditedKeys    = 100
	// Clock ticks a second in /proc; part of the kernel's interface on every Linux in use.
	ticksPerSecond = 100
)

type options struct {
	endpoints   []string
	clients     int
	connections int
	keys        int
	size        int
	duration    time.Duration
	warmUp      time.Duration
	pids        []int
}

// sample is one right reply: when it came, counted from the start, and how long it took.
type sample struct{ at, took time.Duration }

// worker is one client: it has one request under way at a time.
type worker struct {
	samples []sample
	failed  uint64
	first   string
}

type latency struct {
	Min   float64      `json:"min_us"`
	Mean  float64      `json:"mean_us"`
	P50   float64      `json:"p50_us"`
	P90   float64      `json:"p90_us"`
	P99   float64      `json:"p99_us"`
	P999  float64      `json:"p99_9_us"`
	Max   float64      `json:"max_us"`
	Curve [][2]float64 `json:"curve"`
}

type use struct {
	CPU         float64 `json:"cpu_us_per_request"`
	User        uint64  `json:"user_us"`
	System      uint64  `json:"system_us"`
	Voluntary   uint64  `json:"voluntary_switches"`
	Involuntary uint64  `json:"involuntary_switches"`
	Switches    float64 `json:"switches_per_request"`
	Resident    uint64  `json:"resident_bytes"`
}

type report struct {
	Target      string            `json:"target"`
	Loop        string            `json:"loop"`
	RateWanted  *float64          `json:"rate_wanted"`
	Connections int               `json:"connections"`
	Threads     int               `json:"threads"`
	Pipeline    int               `json:"pipeline"`
	WarmUp      float64           `json:"warm_up_s"`
	Duration    float64           `json:"duration_s"`
	Seed        uint64            `json:"seed"`
	Requests    uint64            `json:"requests"`
	Rate        float64           `json:"rate"`
	Shed        uint64            `json:"shed"`
	Errors      map[string]uint64 `json:"errors"`
	FirstError  *string           `json:"first_error"`
	Reconnects  uint64            `json:"reconnects"`
	Statuses    [][2]uint64       `json:"statuses"`
	BytesRead   uint64            `json:"bytes_read"`
	BytesOut    uint64            `json:"bytes_written"`
	Latency     latency           `json:"latency"`
	Late        uint64            `json:"late"`
	Unanswered  uint64            `json:"unanswered"`
	Unsent      uint64            `json:"unsent"`
	Server      *use              `json:"server"`
	Generator   *use              `json:"generator"`
	Seconds     []struct{}        `json:"seconds"`
}

func main() {
	if err := run(parse()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
}

func parse() options {
	var o options
	var endpoints, pids string
	var seconds, warmUp float64
	flag.StringVar(&endpoints, "endpoints", "127.0.0.1:2379", "where the servers listen; connections are spread over them")
	flag.IntVar(&o.clients, "clients", 512, "clients, each with one request under way")
	flag.IntVar(&o.connections, "connections", 64, "connections that the clients share")
	flag.IntVar(&o.keys, "keys", 10000, "keys, each equally likely")
	flag.IntVar(&o.size, "size", 1024, "bytes of a value")
	flag.Float64Var(&seconds, "seconds", 2, "the measured time")
	flag.Float64Var(&warmUp, "warm-up", 0.5, "the time before it")
	flag.StringVar(&pids, "pids", "", "processes whose CPU time is the server's")
	flag.Parse()
	o.endpoints = strings.Split(endpoints, ",")
	o.duration = time.Duration(seconds * float64(time.Second))
	o.warmUp = time.Duration(warmUp * float64(time.Second))
	for _, pid := range strings.Split(pids, ",") {
		if number, err := strconv.Atoi(pid); err == nil {
			o.pids = append(o.pids, number)
		}
	}
	return o
}

func run(o options) error {
	if o.clients < 1 || o.connections < 1 || o.keys < 1 || o.size < 32 || o.duration <= 0 {
		return fmt.Errorf("clients, connections, keys and seconds must be above 0, and a value has 32 bytes at least")
	}
	clients, err := connect(o)
	if err != nil {
		return err
	}
	start := time.Now()
	end := o.warmUp + o.duration
	workers := make([]worker, o.clients)
	var isOver atomic.Bool
	var group sync.WaitGroup
	for index := range workers {
		group.Go(func() {
			workers[index].load(clients[index%len(clients)], o, uint64(index), start, &isOver)
		})
	}
	time.Sleep(time.Until(start.Add(o.warmUp)))
	before, generatorBefore := usesOf(o.pids), usesOf([]int{os.Getpid()})
	time.Sleep(time.Until(start.Add(end)))
	after, generatorAfter := usesOf(o.pids), usesOf([]int{os.Getpid()})
	isOver.Store(true)
	group.Wait()
	if err := audit(clients[0], o); err != nil {
		return err
	}
	done := summarize(o, workers)
	if len(o.pids) > 0 {
		done.Server = between(before, after, done.Requests)
	}
	done.Generator = between(generatorBefore, generatorAfter, done.Requests)
	return json.NewEncoder(os.Stdout).Encode(done)
}

// connect opens the connections: each has one of the servers, in turn.
func connect(o options) ([]*clientv3.Client, error) {
	var clients []*clientv3.Client
	for index := range min(o.connections, o.clients) {
		endpoint := o.endpoints[index%len(o.endpoints)]
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
		if err != nil {
			return nil, err
		}
		if _, err := get(client, "connected"); err != nil {
			return nil, fmt.Errorf("%s: %w", endpoint, err)
		}
		clients = append(clients, client)
	}
	return clients, nil
}

func get(client *clientv3.Client, key string) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	return client.Get(ctx, key)
}

func (w *worker) load(client *clientv3.Client, o options, seed uint64, start time.Time, isOver *atomic.Bool) {
	random := rand.New(rand.NewPCG(seed, uint64(start.UnixNano())))
	rest := strings.Repeat("v", o.size-32)
	var revision int64
	for !isOver.Load() {
		key := "w" + strconv.Itoa(random.IntN(o.keys))
		value := fmt.Sprintf("%016x%016x", random.Uint64(), random.Uint64()) + rest
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		reply, err := client.Put(ctx, key, value)
		cancel()
		ended := time.Now()
		switch {
		case err != nil:
			w.fail(err.Error())
		case reply.Header == nil || reply.Header.Revision <= revision:
			w.fail("a write did not raise the revision")
		default:
			revision = reply.Header.Revision
			w.samples = append(w.samples, sample{ended.Sub(start), ended.Sub(began)})
		}
	}
}

func (w *worker) fail(why string) {
	w.failed++
	if w.first == "" {
		w.first = why
	}
}

// audit reads some keys back: what is there must be what some client wrote.
func audit(client *clientv3.Client, o options) error {
	found := 0
	for key := range min(auditedKeys, o.keys) {
		reply, err := get(client, "w"+strconv.Itoa(key))
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		for _, pair := range reply.Kvs {
			if len(pair.Value) != o.size || !strings.HasSuffix(string(pair.Value), strings.Repeat("v", o.size-32)) {
				return fmt.Errorf("audit: %s holds what nobody wrote", pair.Key)
			}
			found++
		}
	}
	if found == 0 {
		return fmt.Errorf("audit: none of the keys is there")
	}
	return nil
}

func summarize(o options, workers []worker) report {
	var took []float64
	var sum float64
	var failed uint64
	var first *string
	for index := range workers {
		for _, one := range workers[index].samples {
			if one.at >= o.warmUp && one.at < o.warmUp+o.duration {
				us := float64(one.took.Nanoseconds()) / 1000
				took = append(took, us)
				sum += us
			}
		}
		failed += workers[index].failed
		if first == nil && workers[index].first != "" {
			first = &workers[index].first
		}
	}
	slices.Sort(took)
	at := func(quantile float64) float64 {
		if len(took) == 0 {
			return 0
		}
		return took[min(len(took)-1, int(quantile*float64(len(took))))]
	}
	count := uint64(len(took))
	done := report{
		Target: strings.Join(o.endpoints, ","), Loop: "closed", Connections: o.clients, Threads: o.connections, Pipeline: 1,
		WarmUp: o.warmUp.Seconds(), Duration: o.duration.Seconds(),
		Requests: count, Rate: float64(count) / o.duration.Seconds(),
		Errors: map[string]uint64{
			"connect": 0, "reset": 0, "closed": 0, "timeout": 0, "malformed": 0, "status": failed, "body": 0,
		},
		FirstError: first, Statuses: [][2]uint64{}, Seconds: []struct{}{},
	}
	done.Latency = latency{
		Min: at(0), Mean: sum / float64(max(count, 1)), P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999),
		Max: at(1), Curve: [][2]float64{},
	}
	return done
}

// usesOf sums the use of processes so far.
func usesOf(pids []int) use {
	var sum use
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The name before, in parentheses, may itself hold any character.
		text := string(stat)
		fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
		if len(fields) < 13 {
			continue
		}
		user, _ := strconv.ParseUint(fields[11], 10, 64)
		system, _ := strconv.ParseUint(fields[12], 10, 64)
		sum.User += user * (1_000_000 / ticksPerSecond)
		sum.System += system * (1_000_000 / ticksPerSecond)
	}
	return sum
}

func between(before, after use, requests uint64) *use {
	user, system := after.User-before.User, after.System-before.System
	return &use{CPU: float64(user+system) / float64(max(requests, 1)), User: user, System: system}
}
