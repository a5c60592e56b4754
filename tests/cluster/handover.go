// How long calls wait while a node hands its shards on before it stops.
package main

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// What is seen before a stop, for comparison, and for how long calls are watched after it.
const (
	watchedBefore = 2 * time.Second
	watchedAfter  = 500 * ms
)

// handover is what one stop of a node has cost: the longest calls, in milliseconds.
type handover struct {
	victim   int
	ledMeta  bool
	beforeMs int64 // of all shards, before the stop
	ownMs    int64 // of the shards that the node owned
	otherMs  int64 // of the others
	stopMs   int64 // until the process had ended
	calls    int
}

// timed is one call that was answered in the end.
type timed struct {
	shard      int
	began, end time.Time
}

// callers call all shards all the time.
type callers struct {
	round *Round
	keys  []string
	mutex sync.Mutex
	calls []timed
}

func (c *callers) work(number int, pause time.Duration) {
	client := newClient(c.round.cluster, number)
	client.random = rand.New(rand.NewPCG(uint64(number), 7))
	for !c.round.isOver.Load() {
		shard := client.random.IntN(len(c.keys))
		began := time.Now()
		for turn := client.random.IntN(nodeCount); !c.round.isOver.Load(); turn++ {
			key := fmt.Sprintf("%d-%d", number, began.UnixNano())
			request := requestOf(c.keys[shard], Input{Handler: "add", Number: 1}, key)
			reply := client.once(c.round.cluster.Nodes[turn%nodeCount], request.method, request.path, request.key, request.body, attemptLimit)
			if reply.Status == 200 {
				break
			}
			time.Sleep(2 * ms)
		}
		c.mutex.Lock()
		c.calls = append(c.calls, timed{shard, began, time.Now()})
		c.mutex.Unlock()
		time.Sleep(time.Duration(client.random.Int64N(int64(2*pause) + 1)))
	}
}

// longest is that of the calls that were under way between two instants.
func (c *callers) longest(from, to time.Time, isMeant func(shard int) bool) (int64, int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var longest time.Duration
	count := 0
	for _, one := range c.calls {
		if one.end.After(from) && one.began.Before(to) && isMeant(one.shard) {
			longest = max(longest, one.end.Sub(one.began))
			count++
		}
	}
	return longest.Milliseconds(), count
}

func runHandover(options Options) error {
	cluster, end, err := open(options, options.folder)
	if err != nil {
		return err
	}
	defer end()
	round, err := newRound(cluster, options.seed, options.folder)
	if err != nil {
		return err
	}
	guidance := cluster.guidance(newClient(cluster, 700), nil)
	if guidance == nil {
		return fmt.Errorf("no node shows the guidance")
	}
	all := callers{round: round, keys: keysOf(len(guidance.Shards))}
	var group sync.WaitGroup
	for number := range options.clients {
		group.Go(func() { all.work(number, options.pause) })
	}
	defer group.Wait()
	defer round.isOver.Store(true)
	file, err := os.Create(filepath.Join(options.folder, "handover.csv"))
	if err != nil {
		return err
	}
	defer file.Close()
	writer := csv.NewWriter(file)
	_ = writer.Write([]string{"at", "victim", "led_meta", "before_ms", "own_ms", "other_ms", "stop_ms"})
	random := rand.New(rand.NewPCG(options.seed, 5))
	var stops []handover
	for number := range options.kills {
		at := time.Now()
		one, err := all.handOver(random, number%2 == 0)
		if err != nil {
			return err
		}
		stops = append(stops, one)
		row := []string{at.UTC().Format("15:04:05.000"), strconv.Itoa(one.victim), strconv.FormatBool(one.ledMeta)}
		for _, number := range []int64{one.beforeMs, one.ownMs, one.otherMs, one.stopMs} {
			row = append(row, strconv.FormatInt(number, 10))
		}
		_ = writer.Write(row)
		writer.Flush()
	}
	fmt.Println("each stop:", file.Name())
	printHandovers(stops)
	return nil
}

// handOver stops one node, and brings it back.
func (c *callers) handOver(random *rand.Rand, ofLeader bool) (handover, error) {
	cluster := c.round.cluster
	guidance, err := cluster.evenGuidance()
	if err != nil {
		return handover{}, err
	}
	victim := guidance.Leader
	for !ofLeader && victim == guidance.Leader {
		victim = 1 + random.IntN(nodeCount)
	}
	one := handover{victim: victim, ledMeta: ofLeader}
	time.Sleep(watchedBefore)
	node, began := cluster.Nodes[victim-1], time.Now()
	if !node.Terminate() {
		return one, fmt.Errorf("node %d does not stop", victim)
	}
	ended := time.Now()
	time.Sleep(watchedAfter)
	isOwn := func(shard int) bool { return guidance.Shards[shard].Owner == victim }
	one.stopMs = ended.Sub(began).Milliseconds()
	one.beforeMs, one.calls = c.longest(began.Add(-watchedBefore), began, func(int) bool { return true })
	one.ownMs, _ = c.longest(began, ended.Add(watchedAfter), isOwn)
	one.otherMs, _ = c.longest(began, ended.Add(watchedAfter), func(shard int) bool { return !isOwn(shard) })
	c.mutex.Lock()
	c.calls = nil
	c.mutex.Unlock()
	fmt.Printf("%+v\n", one)
	return one, node.Start()
}

// printHandovers prints a line for each kind of node and each time.
func printHandovers(all []handover) {
	fmt.Println("victim,longest call,stops,median_ms,max_ms")
	for _, ledMeta := range []bool{true, false} {
		for _, column := range []struct {
			name string
			of   func(handover) int64
		}{
			{"before the stop", func(h handover) int64 { return h.beforeMs }},
			{"of its shards", func(h handover) int64 { return h.ownMs }},
			{"of other shards", func(h handover) int64 { return h.otherMs }},
			{"until it has ended", func(h handover) int64 { return h.stopMs }},
		} {
			var times []int64
			for _, one := range all {
				if one.ledMeta == ledMeta {
					times = append(times, column.of(one))
				}
			}
			if len(times) > 0 {
				slices.Sort(times)
				fmt.Printf("%s,%s,%d,%d,%d\n", pick(ledMeta, "led the meta shard", "did not lead"), column.name, len(times), times[len(times)/2], times[len(times)-1])
			}
		}
	}
}
