// A network of its own for each node, and between them a switch that loses, delays and narrows what it is told to.
//
// Each namespace has a TUN device whose packets come to this program. So the faults need neither tc nor a firewall.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Place 0 is this machine's own network, where the clients are.
const places = nodeCount + 1

// A path that is narrowed holds this many bytes at most. More are lost, as in a router.
const queueBytes = 256 << 10

// Rule is what happens to packets of one direction between two places.
type Rule struct {
	IsCut     bool
	Loss      float64
	Delay     time.Duration
	Jitter    time.Duration
	BytesEach float64 // bytes in a second; 0 is unlimited
}

// Network is the switch.
type Network struct {
	mutex   sync.Mutex
	rules   [places][places]Rule
	free    [places][places]time.Time // when a narrowed path has sent what it holds
	random  *rand.Rand
	devices [places]*os.File
	paths   [places][places]chan delayed
	name    string
	subnet  int
}

type delayed struct {
	packet []byte
	at     time.Time
}

func (n *Network) namespace(number int) string { return fmt.Sprintf("%s-%d", n.name, number) }

func (n *Network) address(place int) string {
	host := place
	if place == 0 {
		host = 254
	}
	return fmt.Sprintf("10.211.%d.%d", n.subnet, host)
}

// newNetwork makes the namespaces. It fails where this program lacks the right or the device.
func newNetwork(seed uint64) (*Network, error) {
	pid := os.Getpid()
	network := &Network{name: fmt.Sprintf("mrc%d", pid), subnet: pid % 250, random: rand.New(rand.NewPCG(seed, 3))}
	for place := range places {
		if err := network.makePlace(place); err != nil {
			network.remove()
			return nil, err
		}
		for to := range places {
			network.paths[place][to] = make(chan delayed, 4096)
		}
	}
	for from := range places {
		go network.carry(from)
		for to := range places {
			go network.deliver(network.paths[from][to], to)
		}
	}
	return network, nil
}

func (n *Network) makePlace(place int) error {
	inside := []string{}
	device := n.name
	if place > 0 {
		if _, err := command("ip", "netns", "add", n.namespace(place)); err != nil {
			return err
		}
		inside, device = []string{"-n", n.namespace(place)}, "cluster"
	}
	file, err := n.openDevice(place, device)
	if err != nil {
		return err
	}
	n.devices[place] = file
	for _, arguments := range [][]string{
		{"addr", "add", n.address(place) + "/24", "dev", device}, {"link", "set", device, "up", "mtu", "1400"}, {"link", "set", "lo", "up"},
	} {
		if _, err := command("ip", append(inside, arguments...)...); err != nil {
			return err
		}
	}
	return nil
}

// openDevice makes a TUN device in a namespace. Only the thread that opens it goes there.
func (n *Network) openDevice(place int, name string) (*os.File, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if place > 0 {
		home, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		if err != nil {
			return nil, err
		}
		defer home.Close()
		away, err := os.Open("/var/run/netns/" + n.namespace(place))
		if err != nil {
			return nil, err
		}
		defer away.Close()
		if err := unix.Setns(int(away.Fd()), unix.CLONE_NEWNET); err != nil {
			return nil, err
		}
		defer func() {
			if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) != nil {
				panic("this thread cannot return to its network")
			}
		}()
	}
	descriptor, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(descriptor, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(descriptor)
		return nil, err
	}
	return os.NewFile(uintptr(descriptor), name), nil
}

// carry takes the packets of one place to the paths to the others.
func (n *Network) carry(from int) {
	for {
		packet := make([]byte, 2048)
		size, err := n.devices[from].Read(packet)
		if err != nil {
			return
		}
		packet = packet[:size]
		if size < 20 || packet[0]>>4 != 4 {
			continue
		}
		to := int(packet[19])
		if to == 254 {
			to = 0
		}
		if to >= places {
			continue
		}
		if at, isKept := n.when(from, to, size); isKept {
			select {
			case n.paths[from][to] <- delayed{packet, at}:
			default:
			}
		}
	}
}

// when says at what time a packet arrives, if it does.
func (n *Network) when(from, to, size int) (time.Time, bool) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	rule, now := n.rules[from][to], time.Now()
	if rule.IsCut || rule.Loss > 0 && n.random.Float64() < rule.Loss {
		return now, false
	}
	at := now
	if rule.BytesEach > 0 {
		free := n.free[from][to]
		if free.Before(now) {
			free = now
		}
		if free.Sub(now).Seconds()*rule.BytesEach > queueBytes {
			return now, false
		}
		at = free.Add(time.Duration(float64(size) / rule.BytesEach * float64(time.Second)))
		n.free[from][to] = at
	}
	if rule.Delay > 0 {
		at = at.Add(rule.Delay + time.Duration(n.random.Float64()*float64(rule.Jitter)))
	}
	return at, true
}

func (n *Network) deliver(path chan delayed, to int) {
	for one := range path {
		if wait := time.Until(one.at); wait > 0 {
			time.Sleep(wait)
		}
		// A device whose namespace has gone cannot take it, which loses the packet.
		_, _ = n.devices[to].Write(one.packet)
	}
}

// set gives a rule to one direction between two nodes, which replaces the one before.
func (n *Network) set(from, to int, rule Rule) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.rules[from][to] = rule
}

// heal takes all rules away.
func (n *Network) heal() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.rules = [places][places]Rule{}
}

func (n *Network) remove() {
	for place := range places {
		if n.devices[place] != nil {
			n.devices[place].Close()
		}
		if place > 0 {
			_, _ = command("ip", "netns", "del", n.namespace(place))
		}
	}
}
