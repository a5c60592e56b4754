// What goes wrong during a round, drawn from its seed.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// fault begins something, and returns how to end it. It says which nodes it has chosen.
type fault struct {
	name         string
	weight       int
	shortest     time.Duration
	longest      time.Duration
	needsNetwork bool
	isAlone      bool // nothing else may be wrong meanwhile
	begin        func(*Faults) (told string, end func() error)
}

// Faults makes them, one or two at a time.
type Faults struct {
	cluster *Cluster
	random  *rand.Rand
	client  *Client
	round   *Round
	log     *os.File
	inForce atomic.Value // text
	past    []interval
}

// interval is when a fault was in force.
type interval struct {
	name     string
	told     string
	from, to time.Duration
}

const ms = time.Millisecond

var allFaults = []fault{
	{"kill", 6, 100 * ms, 5000 * ms, false, false, func(f *Faults) (string, func() error) { return f.kill(f.some(1)) }},
	{"kill leader", 4, 100 * ms, 5000 * ms, false, false, func(f *Faults) (string, func() error) { return f.kill(f.leader()) }},
	{"kill two", 2, 100 * ms, 4000 * ms, false, false, func(f *Faults) (string, func() error) { return f.kill(f.some(2)) }},
	{"kill all", 2, 50 * ms, 1000 * ms, false, false, func(f *Faults) (string, func() error) { return f.kill(f.some(3)) }},
	{"terminate", 3, 100 * ms, 4000 * ms, false, false, (*Faults).terminate},
	{"pause", 4, 1000 * ms, 5000 * ms, false, false, func(f *Faults) (string, func() error) { return f.pause(f.some(1)) }},
	{"pause leader", 4, 1000 * ms, 5000 * ms, false, false, func(f *Faults) (string, func() error) { return f.pause(f.leader()) }},
	{"pause two", 2, 1000 * ms, 4000 * ms, false, false, func(f *Faults) (string, func() error) { return f.pause(f.some(2)) }},
	{"flicker", 2, 3000 * ms, 6000 * ms, false, false, (*Faults).flicker},
	{"reset", 1, 100 * ms, 1000 * ms, false, true, (*Faults).reset},
	{"isolate", 3, 1000 * ms, 6000 * ms, true, false, func(f *Faults) (string, func() error) { return f.isolate(f.some(1), true, true) }},
	{"isolate leader", 4, 1000 * ms, 6000 * ms, true, false, func(f *Faults) (string, func() error) { return f.isolate(f.leader(), true, true) }},
	{"mute", 3, 1000 * ms, 6000 * ms, true, false, func(f *Faults) (string, func() error) { return f.isolate(f.some(1), true, false) }},
	{"deafen", 3, 1000 * ms, 6000 * ms, true, false, func(f *Faults) (string, func() error) { return f.isolate(f.some(1), false, true) }},
	{"cut all", 1, 1000 * ms, 4000 * ms, true, false, func(f *Faults) (string, func() error) { return f.isolate(f.some(3), true, true) }},
	{"cut one pair", 3, 1000 * ms, 8000 * ms, true, false, func(f *Faults) (string, func() error) { return f.cut(f.some(2), true) }},
	{"cut followers", 2, 3000 * ms, 12000 * ms, true, false, func(f *Faults) (string, func() error) { return f.cut(f.followers(), true) }},
	{"cut one direction", 4, 1000 * ms, 8000 * ms, true, false, func(f *Faults) (string, func() error) { return f.cut(f.some(2), false) }},
	{"slow links", 3, 2000 * ms, 8000 * ms, true, false, (*Faults).slow},
	{"lossy links", 3, 2000 * ms, 8000 * ms, true, false, (*Faults).lose},
	{"narrow links", 2, 2000 * ms, 8000 * ms, true, false, (*Faults).narrow},
}

func newFaults(round *Round, seed uint64, log *os.File) *Faults {
	faults := &Faults{cluster: round.cluster, random: rand.New(rand.NewPCG(seed, 2)), client: newClient(round.cluster, 1000), round: round, log: log}
	faults.inForce.Store("")
	return faults
}

// run makes faults until the time is over, and leaves everything whole.
func (f *Faults) run(until time.Time, only string) error {
	for {
		f.sleep(300*ms, 4000*ms)
		if time.Now().After(until) {
			return nil
		}
		first := f.draw(only, false)
		if err := f.apply(first, func() error {
			if first.isAlone || f.random.IntN(3) > 0 {
				return nil
			}
			return f.apply(f.draw(only, true), nil)
		}); err != nil {
			return err
		}
	}
}

func (f *Faults) sleep(shortest, longest time.Duration) {
	time.Sleep(shortest + time.Duration(f.random.Int64N(int64(longest-shortest))))
}

// draw chooses by weight among those that are possible here.
func (f *Faults) draw(only string, isSecond bool) fault {
	var possible []fault
	sum := 0
	for _, one := range allFaults {
		isWanted := only == "" || strings.Contains(","+only+",", ","+one.name+",")
		if isWanted && !(one.needsNetwork && f.cluster.Network == nil) && !(one.isAlone && isSecond && only == "") {
			possible = append(possible, one)
			sum += one.weight
		}
	}
	if sum == 0 {
		panic("no fault of --only is possible here")
	}
	at := f.random.IntN(sum)
	for _, one := range possible {
		if at -= one.weight; at < 0 {
			return one
		}
	}
	panic("the weights have a sum")
}

func (f *Faults) apply(one fault, meanwhile func() error) error {
	before := f.inForce.Load().(string)
	from := time.Since(f.round.began)
	told, end := one.begin(f)
	f.inForce.Store(strings.TrimPrefix(before+" + "+one.name+" "+told, " + "))
	f.tell("begins: %s %s", one.name, told)
	f.sleep(one.shortest, one.longest)
	var err error
	if meanwhile != nil {
		err = meanwhile()
	}
	if ended := end(); err == nil {
		err = ended
	}
	f.tell("ends:   %s %s", one.name, told)
	f.inForce.Store(before)
	f.past = append(f.past, interval{one.name, told, from, time.Since(f.round.began)})
	return err
}

func (f *Faults) tell(format string, arguments ...any) {
	fmt.Fprintf(f.log, "%8.3f %s %s\n", time.Since(f.round.began).Seconds(), time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, arguments...))
}

func (f *Faults) some(count int) []*Node {
	var chosen []*Node
	for _, at := range f.random.Perm(nodeCount)[:count] {
		chosen = append(chosen, f.cluster.Nodes[at])
	}
	return chosen
}

// leader is the node that owns the meta shard, or some node if nobody knows.
func (f *Faults) leader() []*Node {
	chosen := f.some(1)
	if guidance := f.cluster.guidance(f.client, nil); guidance != nil && guidance.Leader > 0 {
		return []*Node{f.cluster.Nodes[guidance.Leader-1]}
	}
	return chosen
}

func disturb(nodes []*Node, by int32) string {
	var names []string
	for _, node := range nodes {
		node.disturb(by)
		names = append(names, fmt.Sprintf("n%d", node.Number))
	}
	return strings.Join(names, ",")
}

// together does the same to several nodes at once.
func together(nodes []*Node, do func(*Node) error) error {
	var group sync.WaitGroup
	failures := make([]error, len(nodes))
	for at, node := range nodes {
		group.Go(func() { failures[at] = do(node) })
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// revive starts those nodes that do not run.
func revive(nodes []*Node) error {
	defer disturb(nodes, -1)
	return together(nodes, func(node *Node) error {
		if node.isUp() {
			return nil
		}
		return node.Start()
	})
}

func (f *Faults) kill(nodes []*Node) (string, func() error) {
	told := disturb(nodes, 1)
	_ = together(nodes, func(node *Node) error { node.Kill(); return nil })
	return told, func() error { return revive(nodes) }
}

func (f *Faults) terminate() (string, func() error) {
	nodes := f.some(1)
	told := disturb(nodes, 1)
	began := time.Now()
	// One that is paused, or has been killed, cannot stop by itself.
	isClean := !nodes[0].isUp() || nodes[0].Terminate()
	return fmt.Sprintf("%s (clean: %v, %d ms)", told, isClean, time.Since(began).Milliseconds()), func() error { return revive(nodes) }
}

func (f *Faults) pause(nodes []*Node) (string, func() error) {
	told := disturb(nodes, 1)
	for _, node := range nodes {
		node.signal(syscall.SIGSTOP)
	}
	return told, func() error {
		for _, node := range nodes {
			node.signal(syscall.SIGCONT)
		}
		disturb(nodes, -1)
		return nil
	}
}

// flicker pauses a node again and again, about as long as the others take to notice.
func (f *Faults) flicker() (string, func() error) {
	nodes := f.some(1)
	told := disturb(nodes, 1)
	over, done := make(chan bool), make(chan bool)
	random := rand.New(rand.NewPCG(f.random.Uint64(), 4))
	go func() {
		defer close(done)
		for {
			nodes[0].signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(200+random.IntN(800)) * ms)
			nodes[0].signal(syscall.SIGCONT)
			select {
			case <-over:
				return
			case <-time.After(time.Duration(50+random.IntN(500)) * ms):
			}
		}
	}()
	return told, func() error {
		close(over)
		<-done
		disturb(nodes, -1)
		return nil
	}
}

// reset takes everything from a node. The next one may only lose its data when this one has its own again.
func (f *Faults) reset() (string, func() error) {
	nodes := f.some(1)
	node := nodes[0]
	told := disturb(nodes, 1)
	hasAll := f.cluster.waitReady(30*time.Second) && waitFor(60*time.Second, f.allOwn)
	if !hasAll {
		return "of none: the nodes do not own shards", func() error { disturb(nodes, -1); return nil }
	}
	node.Kill()
	_, err := command(f.cluster.binary, "cluster", "reset", node.Directory)
	if err == nil && !waitFor(30*time.Second, func() bool { return f.owns(node) == 0 }) {
		err = fmt.Errorf("the others do not take the shards of node %d within 30 s", node.Number)
	}
	return told, func() error {
		if err != nil {
			return err
		}
		if err := revive(nodes); err != nil {
			return err
		}
		began := time.Now()
		if !waitFor(60*time.Second, f.allOwn) {
			return fmt.Errorf("node %d owns no shard 60 s after it was emptied", node.Number)
		}
		f.tell("node %d owns shards again after %d ms", node.Number, time.Since(began).Milliseconds())
		return nil
	}
}

// allOwn says whether each node owns a shard, which needs a whole log.
func (f *Faults) allOwn() bool {
	return !slices.ContainsFunc(f.cluster.Nodes, func(node *Node) bool { return f.owns(node) == 0 })
}

// owns is how many shards a node owns. Nobody knows it if no node answers: then it is -1.
func (f *Faults) owns(node *Node) int {
	guidance := f.cluster.guidance(f.client, nil)
	if guidance == nil {
		return -1
	}
	return guidance.owned(node.Number)
}

// rules sets a rule for each pair of nodes that is meant, and returns how to heal everything.
func (f *Faults) rules(nodes []*Node, told string, rule func(from, to int) (Rule, bool)) (string, func() error) {
	disturb(nodes, 1)
	for from := 1; from < places; from++ {
		for to := 1; to < places; to++ {
			if one, isMeant := rule(from, to); isMeant && from != to {
				f.cluster.Network.set(from, to, one)
			}
		}
	}
	return told, func() error {
		f.cluster.Network.heal()
		disturb(nodes, -1)
		return nil
	}
}

// isolate cuts nodes off from the other nodes. Clients still reach them.
func (f *Faults) isolate(nodes []*Node, outwards, inwards bool) (string, func() error) {
	isMeant := map[int]bool{}
	var names []string
	for _, node := range nodes {
		isMeant[node.Number] = true
		names = append(names, fmt.Sprintf("n%d", node.Number))
	}
	return f.rules(nodes, strings.Join(names, ","), func(from, to int) (Rule, bool) {
		return Rule{IsCut: true}, outwards && isMeant[from] || inwards && isMeant[to]
	})
}

// followers are the two nodes that do not lead. The leader hears both, though they do not hear each other.
func (f *Faults) followers() []*Node {
	leader := f.leader()[0]
	return slices.DeleteFunc(slices.Clone(f.cluster.Nodes), func(node *Node) bool { return node == leader })
}

func (f *Faults) cut(nodes []*Node, isBoth bool) (string, func() error) {
	a, b := nodes[0].Number, nodes[1].Number
	return f.rules(nodes, fmt.Sprintf("n%d to n%d", a, b), func(from, to int) (Rule, bool) {
		return Rule{IsCut: true}, from == a && to == b || isBoth && from == b && to == a
	})
}

func (f *Faults) slow() (string, func() error) {
	nodes := f.some(1 + 2*f.random.IntN(2))
	rule := Rule{Delay: time.Duration(10+f.random.IntN(290)) * ms, Jitter: time.Duration(1+f.random.IntN(100)) * ms}
	return f.around(nodes, fmt.Sprintf("%v + %v", rule.Delay, rule.Jitter), rule)
}

func (f *Faults) lose() (string, func() error) {
	rule := Rule{Loss: 0.02 + 0.3*f.random.Float64()}
	return f.around(f.some(1+2*f.random.IntN(2)), fmt.Sprintf("%.0f%%", rule.Loss*100), rule)
}

func (f *Faults) narrow() (string, func() error) {
	rule := Rule{BytesEach: float64(20+f.random.IntN(400)) * 1024}
	return f.around(f.some(1+2*f.random.IntN(2)), fmt.Sprintf("%.0f KiB/s", rule.BytesEach/1024), rule)
}

// around gives the rule to all links of the nodes.
func (f *Faults) around(nodes []*Node, told string, rule Rule) (string, func() error) {
	isMeant := map[int]bool{}
	for _, node := range nodes {
		isMeant[node.Number] = true
		told += fmt.Sprintf(" n%d", node.Number)
	}
	return f.rules(nodes, told, func(from, to int) (Rule, bool) { return rule, isMeant[from] || isMeant[to] })
}

// whole makes sure that everything runs and reaches everything.
func (f *Faults) whole() error {
	if f.cluster.Network != nil {
		f.cluster.Network.heal()
	}
	return together(f.cluster.Nodes, func(node *Node) error {
		node.signal(syscall.SIGCONT)
		if node.isUp() {
			return nil
		}
		return node.Start()
	})
}

func logIn(folder, name string) (*os.File, error) {
	return os.Create(filepath.Join(folder, name))
}
