// The nodes: their directories and their processes.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const nodeCount = 3

// Node is one node of the cluster. Its number counts from 1.
type Node struct {
	Number    int
	Directory string
	HTTP      string // host:port
	namespace string // empty where the nodes share the machine's network
	binary    string
	isOurs    bool // it ends when this program ends

	disturbances atomic.Int32
	changedAt    atomic.Int64
}

// Cluster is three nodes in one folder.
type Cluster struct {
	Nodes   []*Node
	Key     string // an API key, or empty
	Network *Network
	binary  string
}

// The system ends a process when the thread that has started it ends. This thread never ends before the program.
var onStarter = make(chan func())

func init() {
	go func() {
		runtime.LockOSThread()
		for work := range onStarter {
			work()
		}
	}()
}

// command runs a command to its end.
func command(name string, arguments ...string) (string, error) {
	output, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(arguments, " "), err, output)
	}
	return string(output), nil
}

// startCluster makes a cluster in a folder that does not exist, and waits until all nodes serve the app.
func startCluster(binary, folder, app string, port int, network *Network) (*Cluster, error) {
	cluster := &Cluster{Network: network, binary: binary}
	var http, peer []string
	for number := 1; number <= nodeCount; number++ {
		host, first := "127.0.0.1", port+2*number
		if network != nil {
			host = network.address(number)
		}
		http = append(http, fmt.Sprintf("%s:%d", host, first))
		peer = append(peer, fmt.Sprintf("%s:%d", host, first+1))
	}
	if _, err := command(binary, "cluster", "init", "--data", folder,
		"--http", strings.Join(http, ","), "--peer", strings.Join(peer, ",")); err != nil {
		return nil, err
	}
	keys := filepath.Join(folder, "n1", "keys.json")
	printed, err := exec.Command(binary, "keys", "--keys", keys, "add", "--role", "admin", "operator").Output()
	if err != nil {
		return nil, fmt.Errorf("no key was made: %w", err)
	}
	cluster.Key = strings.TrimSpace(string(printed))
	for number := 1; number <= nodeCount; number++ {
		node := &Node{Number: number, Directory: filepath.Join(folder, fmt.Sprintf("n%d", number)), HTTP: http[number-1], binary: binary, isOurs: true}
		if network != nil {
			node.namespace = network.namespace(number)
		}
		bytes, err := os.ReadFile(keys)
		if err == nil {
			err = os.WriteFile(filepath.Join(node.Directory, "keys.json"), bytes, 0o600)
		}
		if err != nil {
			return nil, err
		}
		cluster.Nodes = append(cluster.Nodes, node)
		if err := node.Start(); err != nil {
			return nil, err
		}
	}
	return cluster, cluster.deploy(app)
}

// openCluster takes a cluster that runs already, such as one of `millrace cluster demo --keep`.
func openCluster(binary, folder, app, key string) (*Cluster, error) {
	cluster := &Cluster{Key: key, binary: binary}
	for number := 1; number <= nodeCount; number++ {
		node := &Node{Number: number, Directory: filepath.Join(folder, fmt.Sprintf("n%d", number)), binary: binary}
		bytes, err := os.ReadFile(filepath.Join(node.Directory, "cluster.json"))
		if err != nil {
			return nil, err
		}
		var file struct {
			Members []struct {
				HTTP string `json:"http"`
			} `json:"members"`
		}
		if err := json.Unmarshal(bytes, &file); err != nil || len(file.Members) != nodeCount {
			return nil, fmt.Errorf("%s: a cluster of %d nodes is needed", node.Directory, nodeCount)
		}
		node.HTTP = file.Members[number-1].HTTP
		cluster.Nodes = append(cluster.Nodes, node)
	}
	return cluster, cluster.deploy(app)
}

func (c *Cluster) deploy(app string) error {
	if !c.waitReady(30 * time.Second) {
		return errors.New("the nodes do not become ready within 30 s")
	}
	arguments := []string{"deploy", app, "--url", "http://" + c.Nodes[0].HTTP}
	if c.Key != "" {
		arguments = append(arguments, "--api-key", c.Key)
	}
	_, err := command(c.binary, arguments...)
	return err
}

// waitReady waits until all nodes say that they are ready.
func (c *Cluster) waitReady(limit time.Duration) bool {
	client := newClient(c, 0)
	return waitFor(limit, func() bool {
		for _, node := range c.Nodes {
			if client.once(node, "GET", "/readyz", "", nil, time.Second).Status != 200 {
				return false
			}
		}
		return true
	})
}

func (c *Cluster) stop() {
	for _, node := range c.Nodes {
		if node.isOurs {
			node.signal(syscall.SIGCONT)
			node.Kill()
		}
	}
}

func waitFor(limit time.Duration, condition func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if condition() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// Start starts the node's process, which writes its log beside the node's directory.
func (n *Node) Start() error {
	log, err := os.OpenFile(n.Directory+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	arguments := []string{n.binary, "serve", "--cores", "1", "--cluster-data", n.Directory}
	if n.namespace != "" {
		arguments = append([]string{"ip", "netns", "exec", n.namespace}, arguments...)
	}
	process := exec.Command(arguments[0], arguments[1:]...)
	process.Stdout, process.Stderr = log, log
	process.SysProcAttr = &syscall.SysProcAttr{}
	if n.isOurs {
		process.SysProcAttr.Pdeathsig = syscall.SIGKILL
	} else {
		process.SysProcAttr.Setsid = true
	}
	started := make(chan error)
	onStarter <- func() { started <- process.Start() }
	if err := <-started; err != nil {
		return err
	}
	go process.Wait()
	// Its file of the process is written when it serves. Until then an old one may be there.
	if !waitFor(20*time.Second, func() bool { return n.pid() == process.Process.Pid || !isRunning(process.Process.Pid) }) {
		return fmt.Errorf("node %d does not start; see %s.log", n.Number, n.Directory)
	}
	if n.pid() != process.Process.Pid {
		return fmt.Errorf("node %d ends at its start; see %s.log", n.Number, n.Directory)
	}
	return nil
}

func (n *Node) pid() int {
	bytes, err := os.ReadFile(filepath.Join(n.Directory, "pid"))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(bytes)))
	return pid
}

// isRunning says whether there is such a process that has not ended.
func isRunning(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, behind, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(behind, "Z") && !strings.HasPrefix(behind, "X")
}

// isUp says whether the process in the node's file runs and is this node: the number may be another program's by now.
func (n *Node) isUp() bool {
	pid := n.pid()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if pid == 0 || err != nil || !isRunning(pid) {
		return false
	}
	place, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	arguments := strings.Split(string(line), "\x00")
	for at, argument := range arguments[:len(arguments)-1] {
		if argument == "--cluster-data" {
			directory := arguments[at+1]
			if !filepath.IsAbs(directory) {
				directory = filepath.Join(place, directory)
			}
			return filepath.Clean(directory) == n.Directory
		}
	}
	return false
}

// disturb says that a fault touches the node, or no longer does.
func (n *Node) disturb(by int32) {
	n.disturbances.Add(by)
	n.changedAt.Store(time.Now().UnixNano())
}

// wasCalm says whether no fault has touched the node since an instant.
func (n *Node) wasCalm(since time.Time) bool {
	return n.disturbances.Load() == 0 && n.changedAt.Load() < since.UnixNano()
}

func (n *Node) signal(signal syscall.Signal) {
	if n.isUp() {
		syscall.Kill(n.pid(), signal)
	}
}

// Kill ends the node at once.
func (n *Node) Kill() {
	n.signal(syscall.SIGKILL)
	waitFor(10*time.Second, func() bool { return !n.isUp() })
}

// Terminate asks the node to end, and waits until it has.
func (n *Node) Terminate() bool {
	n.signal(syscall.SIGTERM)
	if waitFor(30*time.Second, func() bool { return !n.isUp() }) {
		return true
	}
	n.Kill()
	return false
}

// Guidance is the part of GET /cluster that is needed here.
type Guidance struct {
	Epoch       int  `json:"epoch"`
	Leader      int  `json:"leader"`
	HasMajority bool `json:"has_majority"`
	Nodes       map[string]struct {
		IsAlive bool `json:"is_alive"`
	} `json:"nodes"`
	Shards []struct {
		Owner    int   `json:"owner"`
		Replicas []int `json:"replicas"`
		Wanted   []int `json:"wanted"`
	} `json:"shards"`
}

// guidance asks one node, or any if nobody is named.
func (c *Cluster) guidance(client *Client, from *Node) *Guidance {
	for _, node := range c.Nodes {
		if from != nil && node != from {
			continue
		}
		reply := client.once(node, "GET", "/cluster", "", nil, time.Second)
		var guidance Guidance
		if reply.Status == 200 && json.Unmarshal(reply.Body, &guidance) == nil {
			return &guidance
		}
	}
	return nil
}

func (g *Guidance) owned(node int) int {
	count := 0
	for _, shard := range g.Shards {
		if shard.Owner == node {
			count++
		}
	}
	return count
}
