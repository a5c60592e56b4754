// Nodes come and go while clients work: the cluster grows, shrinks again, and no history breaks.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// How long a node may take until it has its share of the shards, or none any more.
const changeLimit = time.Minute

// runGrow adds nodes one by one up to --nodes, and takes the same ones out again. The judgement is that of a round.
func runGrow(options Options) error {
	if options.given != "" {
		return fmt.Errorf("grow starts a cluster of its own: leave out --cluster")
	}
	options.network = "off"
	fmt.Println("results:", options.folder)
	cluster, end, err := open(options, options.folder)
	if err != nil {
		return err
	}
	defer end()
	round, err := newRound(cluster, options.seed, options.folder)
	if err != nil {
		return err
	}
	growth := growth{cluster: cluster, options: options, client: newClient(cluster, 700), round: round}
	defer growth.stop()
	summary := round.run(options.seed, options.folder, options, growth.run)
	if !summary.print() {
		return fmt.Errorf("the round is wrong")
	}
	return nil
}

// growth adds nodes to a cluster, and takes them out. Clients do not know of them: what they hold is reached over the others.
type growth struct {
	cluster *Cluster
	options Options
	client  *Client
	round   *Round
	nodes   []*Node
}

func (g *growth) run() error {
	fmt.Println("change,node,owns,took_ms")
	for number := nodeCount + 1; number <= g.options.nodes; number++ {
		if err := g.join(number); err != nil {
			return err
		}
	}
	for len(g.nodes) > 0 {
		if err := g.leave(); err != nil {
			return err
		}
	}
	return nil
}

// command runs one of the server's, which asks the first node.
func (g *growth) command(arguments ...string) error {
	arguments = append(arguments, "--url", "http://"+g.cluster.Nodes[0].HTTP, "--api-key", g.cluster.Key)
	_, err := command(g.cluster.binary, arguments...)
	return err
}

// join adds a node, and waits until it owns its share of the shards.
func (g *growth) join(number int) error {
	began := time.Now()
	data := filepath.Dir(g.cluster.Nodes[0].Directory)
	port := g.options.port + 2*number
	node := &Node{Number: number, Directory: filepath.Join(data, fmt.Sprintf("n%d", number)), HTTP: fmt.Sprintf("127.0.0.1:%d", port),
		binary: g.cluster.binary, isOurs: true}
	peer := fmt.Sprintf("127.0.0.1:%d", port+1)
	if err := g.command("cluster", "join", "--authority", filepath.Join(data, "authority"), "--data", node.Directory,
		"--http", node.HTTP, "--peer", peer); err != nil {
		return err
	}
	g.nodes = append(g.nodes, node)
	if err := node.Start(); err != nil {
		return err
	}
	return g.until("joins", node, began, func(guidance *Guidance) bool {
		// Only nodes that hold a shard may own it, so a node may have one fewer than its share.
		return guidance.owned(number) >= len(guidance.Shards)/number-1 && guidance.isSettled()
	})
}

// leave drains the node that came last, and removes it.
func (g *growth) leave() error {
	began := time.Now()
	node := g.nodes[len(g.nodes)-1]
	g.nodes = g.nodes[:len(g.nodes)-1]
	number := strconv.Itoa(node.Number)
	limit := strconv.Itoa(int(changeLimit / time.Second))
	if err := g.command("cluster", "drain", number, "--wait-s", limit); err != nil {
		return err
	}
	if err := g.command("cluster", "remove", number, "--wait-s", limit); err != nil {
		return err
	}
	node.Kill()
	return g.until("leaves", node, began, func(guidance *Guidance) bool {
		_, isThere := guidance.Nodes[number]
		return !isThere && guidance.isSettled()
	})
}

// until waits until the guidance is as it should be, and prints how long that took.
func (g *growth) until(change string, node *Node, began time.Time, isDone func(*Guidance) bool) error {
	var guidance *Guidance
	if !waitFor(changeLimit, func() bool {
		guidance = g.cluster.guidance(g.client, nil)
		return guidance != nil && isDone(guidance)
	}) {
		return fmt.Errorf("node %d: it %s, and that has not ended after %v: %s", node.Number, change, changeLimit, guidance.progress())
	}
	fmt.Printf("%s,%d,%d,%d\n", change, node.Number, guidance.owned(node.Number), time.Since(began).Milliseconds())
	return nil
}

// stop ends the nodes that are left after an error.
func (g *growth) stop() {
	for _, node := range g.nodes {
		node.Kill()
		if !g.options.keep {
			os.RemoveAll(node.Directory)
		}
	}
}

// progress tells how many shards each node owns, and which are on their way.
func (g *Guidance) progress() string {
	if g == nil {
		return "no node shows the guidance"
	}
	told := "owned"
	for _, number := range slices.Sorted(maps.Keys(g.Nodes)) {
		of, _ := strconv.Atoi(number)
		told += fmt.Sprintf(" %s:%d", number, g.owned(of))
	}
	for at, shard := range g.Shards {
		if len(shard.Replicas) != nodeCount || len(shard.Wanted) > 0 {
			told += fmt.Sprintf("; shard %d owned by %d on %v, wanted on %v", at, shard.Owner, shard.Replicas, shard.Wanted)
		}
	}
	return told
}

// isSettled says whether each shard is held by three nodes, and no other is to hold it.
func (g *Guidance) isSettled() bool {
	for _, shard := range g.Shards {
		if shard.Owner == 0 || len(shard.Replicas) != nodeCount || len(shard.Wanted) > 0 {
			return false
		}
	}
	return true
}
