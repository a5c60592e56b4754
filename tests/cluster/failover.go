// How long the shards of a killed node are not served.
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

	"github.com/zeebo/xxh3"
)

// How long a killed node may take until it has its share of the shards again.
const rejoinLimit = 90 * time.Second

// failover is what one kill has cost.
type failover struct {
	victim    int
	ledMeta   bool
	keyMs     int64 // one key of the victim, chosen before the kill
	lastMs    int64 // the last of all shards of the victim
	leaderMs  int64 // until some other node names a leader that is not the victim
	decidedMs int64 // until guidance gives the key's shard to another node
	rejoinMs  int64
}

// keysOf has one key for each shard. The hash is XXH3, as that of `shard_of_key` in the server. It never changes there.
func keysOf(shards int) []string {
	keys := make([]string, shards)
	missing := shards
	for number := 0; missing > 0; number++ {
		key := fmt.Sprintf("failover-%d", number)
		if shard := xxh3.HashString(key) % uint64(shards); keys[shard] == "" {
			keys[shard] = key
			missing--
		}
	}
	return keys
}

func runFailover(options Options) error {
	cluster, end, err := open(options, options.folder)
	if err != nil {
		return err
	}
	defer end()
	round, err := newRound(cluster, options.seed, options.folder)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for number := range options.clients {
		group.Go(func() { round.work(number, options.seed, options.pause) })
	}
	defer group.Wait()
	defer round.isOver.Store(true)
	file, err := os.Create(filepath.Join(options.folder, "failover.csv"))
	if err != nil {
		return err
	}
	defer file.Close()
	writer := csv.NewWriter(file)
	_ = writer.Write([]string{"at", "victim", "led_meta", "key_ms", "last_shard_ms", "leader_ms", "decided_ms", "rejoin_ms"})
	random := rand.New(rand.NewPCG(options.seed, 5))
	var all []failover
	for number := range options.kills {
		at := time.Now()
		one, err := round.failOver(random, number%2 == 0)
		if err != nil {
			return err
		}
		all = append(all, one)
		row := []string{at.UTC().Format("15:04:05.000"), strconv.Itoa(one.victim), strconv.FormatBool(one.ledMeta)}
		for _, number := range []int64{one.keyMs, one.lastMs, one.leaderMs, one.decidedMs, one.rejoinMs} {
			row = append(row, strconv.FormatInt(number, 10))
		}
		_ = writer.Write(row)
		writer.Flush()
	}
	fmt.Println("each kill:", file.Name())
	printFailovers(all)
	return nil
}

// printFailovers prints a line for each kind of victim and each time.
func printFailovers(all []failover) {
	fmt.Println("victim,what,kills,median_ms,p90_ms,max_ms")
	for _, ledMeta := range []bool{true, false} {
		for _, column := range []struct {
			name string
			of   func(failover) int64
		}{
			{"its key is served", func(f failover) int64 { return f.keyMs }},
			{"all its shards are served", func(f failover) int64 { return f.lastMs }},
			{"there is a leader", func(f failover) int64 { return f.leaderMs }},
			{"guidance names another owner", func(f failover) int64 { return f.decidedMs }},
			{"it has shards again", func(f failover) int64 { return f.rejoinMs }},
		} {
			var times []int64
			for _, one := range all {
				if one.ledMeta == ledMeta {
					times = append(times, column.of(one))
				}
			}
			if len(times) == 0 {
				continue
			}
			slices.Sort(times)
			fmt.Printf("%s,%s,%d,%d,%d,%d\n", pick(ledMeta, "led the meta shard", "did not lead"), column.name, len(times),
				times[len(times)/2], times[(len(times)*9+9)/10-1], times[len(times)-1])
		}
	}
}

// failOver kills one node, waits until its shards are served, and brings it back.
func (r *Round) failOver(random *rand.Rand, ofLeader bool) (failover, error) {
	client := newClient(r.cluster, 700)
	guidance, err := r.cluster.evenGuidance()
	if err != nil {
		return failover{}, err
	}
	victim := guidance.Leader
	for !ofLeader && victim == guidance.Leader {
		victim = 1 + random.IntN(nodeCount)
	}
	one := failover{victim: victim, ledMeta: ofLeader}
	keys := keysOf(len(guidance.Shards))
	var shards []int
	for shard, place := range guidance.Shards {
		if place.Owner == victim {
			shards = append(shards, shard)
		}
	}
	chosen := shards[random.IntN(len(shards))]
	node := r.cluster.Nodes[victim-1]
	began := time.Now()
	node.Kill()
	elapsed := func() int64 { return time.Since(began).Milliseconds() }
	var group sync.WaitGroup
	served := make([]int64, len(keys))
	for _, shard := range shards {
		group.Go(func() {
			if r.addOnce(newClient(r.cluster, 800+shard), keys[shard]) {
				served[shard] = elapsed()
			} else {
				served[shard] = -1
			}
		})
	}
	group.Go(func() { r.watch(&one, chosen, elapsed) })
	group.Wait()
	one.keyMs, one.lastMs = served[chosen], slices.Max(served)
	if slices.Min(served) < 0 {
		return one, fmt.Errorf("a shard of node %d is not served %v after it was killed", victim, operationLimit)
	}
	back := time.Now()
	if err := node.Start(); err != nil {
		return one, err
	}
	if !waitFor(rejoinLimit, func() bool {
		now := r.cluster.guidance(client, nil)
		return now != nil && now.owned(victim) > 0
	}) {
		return one, fmt.Errorf("node %d owns no shard %v after it came back", victim, rejoinLimit)
	}
	one.rejoinMs = time.Since(back).Milliseconds()
	fmt.Printf("%+v\n", one)
	return one, nil
}

func (r *Round) addOnce(client *Client, key string) bool {
	request := requestOf(key, Input{Handler: "add", Number: 1}, fmt.Sprintf("%s-%d", key, time.Now().UnixNano()))
	request.limit = operationLimit
	return client.try(r, request).IsDone
}

// watch asks the other nodes who leads and who owns the shard.
func (r *Round) watch(one *failover, shard int, elapsed func() int64) {
	client := newClient(r.cluster, 701)
	waitFor(operationLimit, func() bool {
		for _, node := range r.cluster.Nodes {
			if node.Number == one.victim {
				continue
			}
			guidance := r.cluster.guidance(client, node)
			if guidance == nil {
				continue
			}
			if one.leaderMs == 0 && guidance.Leader > 0 && guidance.Leader != one.victim {
				one.leaderMs = elapsed()
			}
			if one.decidedMs == 0 && guidance.Shards[shard].Owner != one.victim {
				one.decidedMs = elapsed()
			}
		}
		return one.leaderMs > 0 && one.decidedMs > 0
	})
}

// evenGuidance waits until there is a leader and the nodes share the shards evenly.
func (c *Cluster) evenGuidance() (*Guidance, error) {
	client := newClient(c, 702)
	var guidance *Guidance
	if waitFor(rejoinLimit, func() bool {
		guidance = c.guidance(client, nil)
		return guidance != nil && guidance.Leader > 0 && guidance.isEven()
	}) {
		return guidance, nil
	}
	return nil, fmt.Errorf("the nodes do not share the shards evenly within %v", rejoinLimit)
}

// isEven says whether all nodes live and own as many shards, so that none moves.
func (g *Guidance) isEven() bool {
	least, most := len(g.Shards), 0
	for number := 1; number <= nodeCount; number++ {
		if !g.Nodes[strconv.Itoa(number)].IsAlive {
			return false
		}
		least, most = min(least, g.owned(number)), max(most, g.owned(number))
	}
	return most-least <= 1
}
