// Checks a cluster from outside: clients work while nodes are killed, paused and cut off, and each history has to be
// linearizable. README.md says more.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Options are those of all commands.
type Options struct {
	binary, app, folder, given, key, network, only, lie string
	seed                                                uint64
	rounds, clients, port, kills, nodes                 int
	length, pause                                       time.Duration
	keep                                                bool
}

func main() {
	arguments, run := os.Args[1:], runRounds
	others := map[string]func(Options) error{"failover": runFailover, "handover": runHandover, "grow": runGrow}
	if len(arguments) > 0 && others[arguments[0]] != nil {
		arguments, run = arguments[1:], others[arguments[0]]
	}
	options, err := parse(arguments)
	if err == nil {
		err = run(options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster-check:", err)
		os.Exit(1)
	}
}

func parse(arguments []string) (Options, error) {
	var options Options
	flags := flag.NewFlagSet("cluster-check", flag.ExitOnError)
	flags.StringVar(&options.binary, "millrace", os.Getenv("MILLRACE_BINARY"), "the server's binary")
	flags.StringVar(&options.app, "app", "../apps/registers", "the folder of the app")
	flags.StringVar(&options.folder, "folder", "", "where to keep data, logs and what is found (default: a folder of the system's for such)")
	flags.StringVar(&options.given, "cluster", "", "the folder of a cluster that runs, instead of one that is started")
	flags.StringVar(&options.key, "api-key", "", "the key for --cluster, if it asks for one")
	flags.StringVar(&options.network, "network", "auto", "on, off or auto: a network of its own for each node, which needs root")
	flags.StringVar(&options.only, "only", "", "only these faults, separated by commas")
	flags.StringVar(&options.lie, "lie", "", "value or stale: falsify one read, which has to be found")
	flags.Uint64Var(&options.seed, "seed", uint64(time.Now().UnixMilli()%1e6), "of the first round; each further one adds 1")
	flags.IntVar(&options.rounds, "rounds", 2, "how many rounds, each with a new cluster")
	flags.IntVar(&options.clients, "clients", 10, "how many clients")
	flags.IntVar(&options.port, "port", 19000, "the first of the ports on 127.0.0.1")
	flags.IntVar(&options.kills, "kills", 50, "of failover; stops, of handover")
	flags.IntVar(&options.nodes, "nodes", 9, "how many nodes grow goes up to")
	seconds := flags.Float64("seconds", 40, "how long faults are made in each round")
	flags.DurationVar(&options.pause, "pause", 25*ms, "a client's mean pause between operations")
	flags.DurationVar(&attemptLimit, "patience", attemptLimit, "how long a client waits for one node's answer")
	flags.BoolVar(&options.keep, "keep", false, "keep the nodes' data")
	if err := flags.Parse(arguments); err != nil {
		return options, err
	}
	options.length = time.Duration(*seconds * float64(time.Second))
	if flags.NArg() > 0 || options.binary == "" {
		return options, errors.New("usage: cluster-check [failover | handover | grow] --millrace BINARY [flags]; -h lists them")
	}
	var err error
	if options.folder == "" {
		options.folder, err = os.MkdirTemp("", "millrace-cluster-check-")
	}
	for _, path := range []*string{&options.binary, &options.app, &options.folder, &options.given} {
		if err == nil && *path != "" {
			*path, err = filepath.Abs(*path)
		}
	}
	return options, err
}

// open starts a cluster, or takes the one that is given. The second result ends what was begun.
func open(options Options, folder string) (*Cluster, func(), error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, nil, err
	}
	if options.given != "" {
		cluster, err := openCluster(options.binary, options.given, options.app, options.key)
		return cluster, func() {}, err
	}
	var network *Network
	var err error
	if options.network != "off" {
		network, err = newNetwork(options.seed)
		if err != nil && options.network == "on" {
			return nil, nil, err
		}
		if err != nil {
			fmt.Println("faults of the network are left out:", err)
		}
	}
	data := filepath.Join(folder, "data")
	cluster, err := startCluster(options.binary, data, options.app, options.port, network)
	end := func() {
		cluster.stop()
		if network != nil {
			network.remove()
		}
		if !options.keep {
			for _, node := range cluster.Nodes {
				os.RemoveAll(node.Directory)
			}
		}
	}
	if err != nil {
		if cluster != nil {
			end()
		} else if network != nil {
			network.remove()
		}
		return nil, nil, err
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, isSignal := <-stopped; isSignal {
			end()
			os.Exit(130)
		}
	}()
	return cluster, func() { signal.Stop(stopped); close(stopped); end() }, nil
}

func runRounds(options Options) error {
	fmt.Println("results:", options.folder)
	wrong, latencies := 0, map[string]*Latency{}
	for number := range options.rounds {
		seed := options.seed + uint64(number)
		folder := filepath.Join(options.folder, fmt.Sprintf("seed-%d", seed))
		cluster, end, err := open(options, folder)
		if err != nil {
			return err
		}
		round, err := newRound(cluster, seed, folder)
		if err != nil {
			end()
			return err
		}
		summary := round.run(seed, folder, options, func() error { return round.faults.run(round.began.Add(options.length), options.only) })
		end()
		if !summary.print() {
			wrong++
		}
		for name, one := range summary.Latencies {
			merge(latencies, name, one.times)
		}
	}
	fmt.Println("operations that met one kind of fault, at most 1.5 s after its end:")
	printLatencies(latencies)
	if wrong > 0 {
		return fmt.Errorf("%d of %d rounds are wrong", wrong, options.rounds)
	}
	return nil
}

// print tells a round in a few lines, and says whether it is right.
func (s Summary) print() bool {
	v := s.Verdict
	fmt.Printf("seed %d: %d operations on %d objects, %d open, %d undecided, %d faults (network: %v), ready after %d ms, all read after %d ms, %.0f s\n",
		s.Seed, v.Operations, v.Objects, v.Open, len(v.Undecided), s.Faults, s.HasNetwork, s.ReadyMs, s.ReadMs, s.WallSeconds)
	fmt.Printf("  answers: %v\n", s.Errors)
	for _, what := range slices.Sorted(maps.Keys(s.Unexpected)) {
		fmt.Printf("  not expected: %s, such as\n    %s\n", what, s.Unexpected[what][0])
	}
	for _, one := range s.Slowest[:min(3, len(s.Slowest))] {
		fmt.Printf("  slow: %d ms at %.3f s, %s %v, faults [%s]\n", one.Ms, float64(one.AtMs)/1000, one.Told, one.Tries, one.Faults)
	}
	for _, failure := range append(s.Failures, v.Violations...) {
		fmt.Println("  WRONG:", failure)
	}
	return len(s.Failures)+len(v.Violations) == 0
}
