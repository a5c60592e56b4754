// A round: clients that work while faults come and go, and what they have seen at the end.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// An object is retired after so many operations, or so many without an answer: the search for an order stays short.
const (
	operationsEach = 400
	openEach       = 4
)

// How long a client tries one operation, and how long the cluster may take to be whole at the end.
const (
	operationLimit = 25 * time.Second
	wholeLimit     = 60 * time.Second
	mailLimit      = 60 * time.Second
)

// How many objects of each kind are used at a time.
var slotsOf = map[string]int{"register": 6, "counter": 3, "set": 3, "list": 2, "group": 3, "bank": 2, "mail": 2}

// Round is one life of a cluster under faults.
type Round struct {
	cluster *Cluster
	history *History
	faults  *Faults
	errors  errorCounts
	began   time.Time
	name    string
	slots   []*slot
	unique  atomic.Int64
	isOver  atomic.Bool
	mail    map[string]*mail
	slowest []slowOperation
	wrong   []string
	mutex   sync.Mutex // of mail, slowest and wrong
}

// slot is a place for one object after the other.
type slot struct {
	mutex      sync.Mutex
	kind       string
	index      int
	generation int
	operations int
	open       int
}

// mail counts what was sent to one object: it must arrive exactly once.
type mail struct{ sent, open int }

type slowOperation struct {
	Ms      int64
	Told    string
	Faults  string
	Tries   Attempts
	AtMs    int64
	IsKnown bool
}

// errorCounts counts outcomes, and keeps some of those that nobody should see.
type errorCounts struct {
	mutex      sync.Mutex
	counts     map[string]int
	unexpected map[string][]string
}

// What the guide lets a client see while nodes are lost.
var expectedCodes = map[string]bool{
	"200": true, "202": true, "overloaded": true, "result-unknown": true, "shutting-down": true,
	"unreachable": true, "broken": true, "unknown-state": true, "unknown-field": true,
}

func (e *errorCounts) note(round *Round, attempt Attempt, reply Reply, request Request) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	what := attempt.What
	e.counts[what]++
	node := round.cluster.Nodes[attempt.Node-1]
	if reply.WasSent && attempt.Ms > 3500 && node.wasCalm(round.began.Add(time.Duration(attempt.AtMs)*ms)) {
		what = "an answer after more than 3.5 s from a node without a fault: " + what
		e.counts[what]++
	} else if expectedCodes[what] || what == "timeout" {
		return
	}
	if len(e.unexpected[what]) < 8 {
		e.unexpected[what] = append(e.unexpected[what], fmt.Sprintf("at %.3f s node %d, %d ms, %s %s, faults [%s]: %d %.300s %v",
			float64(attempt.AtMs)/1000, attempt.Node, attempt.Ms, request.path, request.body, round.faults.inForce.Load(), reply.Status, reply.Body, reply.Err))
	}
}

func newRound(cluster *Cluster, seed uint64, folder string) (*Round, error) {
	log, err := logIn(folder, "faults.txt")
	if err != nil {
		return nil, err
	}
	round := &Round{cluster: cluster, history: newHistory(), began: time.Now(), mail: map[string]*mail{},
		name: strconv.FormatInt(time.Now().UnixMilli()%1e8, 36)}
	round.errors = errorCounts{counts: map[string]int{}, unexpected: map[string][]string{}}
	round.faults = newFaults(round, seed, log)
	for _, kind := range slices.Sorted(maps.Keys(slotsOf)) {
		for index := range slotsOf[kind] {
			round.slots = append(round.slots, &slot{kind: kind, index: index})
		}
	}
	return round, nil
}

// use takes the object of a slot for one operation.
func (s *slot) use(round string) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.operations >= operationsEach || s.open >= openEach {
		s.generation, s.operations, s.open = s.generation+1, 0, 0
	}
	s.operations++
	return fmt.Sprintf("%s-%s-%d-%d", s.kind, round, s.index, s.generation)
}

func (s *slot) noteOpen() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.open++
}

// work is one client. It pauses between operations, as the machine is shared with the nodes.
func (r *Round) work(number int, seed uint64, pause time.Duration) {
	client := newClient(r.cluster, number)
	client.random = rand.New(rand.NewPCG(seed, uint64(100+number)))
	for !r.isOver.Load() {
		slot := r.slots[client.random.IntN(len(r.slots))]
		object := slot.use(r.name)
		if client.random.IntN(20) == 0 {
			r.repeat(client)
		} else if slot.kind == "mail" {
			r.post(client, object)
		} else if r.operate(client, object, r.draw(client, object)) {
			slot.noteOpen()
		}
		time.Sleep(time.Duration(client.random.Int64N(int64(2 * pause))))
	}
}

// draw chooses an operation for a kind of object.
func (r *Round) draw(client *Client, object string) Input {
	unique, random := int(r.unique.Add(1)), client.random
	choice := random.IntN(10)
	switch kindOf(object) {
	case "register":
		recent := string(client.seen[object])
		if recent == "" {
			recent = "null"
		}
		return []Input{{Handler: "get"}, {Handler: "state"}, {Handler: "get"}, {Handler: "state"}, {Handler: "put", Number: unique},
			{Handler: "put", Number: unique}, {Handler: "put", Number: unique}, {Handler: "swap", Expected: "null", Number: unique},
			{Handler: "swap", Expected: recent, Number: unique}, {Handler: "swap", Expected: recent, Number: unique}}[choice]
	case "counter":
		return pick(choice < 6, Input{Handler: "add", Number: 1 + random.IntN(5)}, Input{Handler: "sum"})
	case "set":
		changed := pick(choice%2 == 0, Input{Handler: "insert"}, Input{Handler: "remove"})
		changed.Number = random.IntN(8)
		return pick(choice < 7, changed, Input{Handler: "members"})
	case "list":
		return pick(choice < 5, Input{Handler: "append", Number: unique}, Input{Handler: "list"})
	case "group":
		return pick(choice < 5, Input{Handler: "putAll", Number: unique}, Input{Handler: "getAll"})
	}
	from := random.IntN(bankSize)
	to := (from + 1 + random.IntN(bankSize-1)) % bankSize
	return pick(choice < 6, Input{Handler: "transfer", From: from, To: to, Number: 1 + random.IntN(9)}, Input{Handler: "getAll"})
}

func pick[T any](isFirst bool, first, second T) T {
	if isFirst {
		return first
	}
	return second
}

// partsOf names the entities of an object that has several.
func partsOf(object string) []string {
	count := pick(kindOf(object) == "bank", bankSize, groupSize)
	var parts []string
	for at := range count {
		parts = append(parts, fmt.Sprintf("%s.%d", object, at))
	}
	return parts
}

// requestOf is the call that makes an operation.
func requestOf(object string, input Input, key string) Request {
	entity, handler, body := object, input.Handler, any(nil)
	switch handler {
	case "state":
		return Request{method: "GET", path: "/state/register/" + url.PathEscape(object) + "/value"}
	case "put", "add", "insert", "remove", "append":
		body = input.Number
	case "swap":
		body = map[string]any{"from": json.RawMessage(input.Expected), "to": input.Number}
	case "putAll":
		parts := partsOf(object)
		entity, body = parts[input.Number%len(parts)], map[string]any{"keys": parts, "value": input.Number}
	case "getAll":
		entity, body = partsOf(object)[0], partsOf(object)
	case "transfer":
		parts := partsOf(object)
		entity, body = parts[input.From], map[string]any{"to": parts[input.To], "amount": input.Number}
	}
	bytes, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	if isReading[handler] {
		key = ""
	}
	return Request{method: "POST", path: fmt.Sprintf("/call/register/%s/%s", url.PathEscape(entity), handler), key: key, body: bytes}
}

// operate makes one operation and writes it down. It says whether nobody knows its outcome.
func (r *Round) operate(client *Client, object string, input Input) bool {
	request := requestOf(object, input, fmt.Sprintf("%s-%d-%d", r.name, client.number, r.unique.Add(1)))
	request.limit, request.givesUp = operationLimit, 0.15
	faults := r.faults.inForce.Load().(string)
	call := time.Since(r.began)
	outcome := client.try(r, request)
	end := time.Since(r.began)
	operation := Operation{Object: object, Client: client.number, Input: input, Call: int64(call), Return: int64(end), Attempts: outcome.Attempts}
	r.noteSlow(operation, faults, outcome.IsDone)
	switch {
	case outcome.IsDone:
		operation.Output = outputOf(outcome.Reply)
		if isReading[input.Handler] {
			client.seen[object] = operation.Output
		} else {
			client.remember(request, outcome.Reply)
		}
	case isReading[input.Handler] || !outcome.IsOpen:
		// It has not happened. If it has, a later read shows a value that nobody wrote.
		return false
	default:
		operation.Return = never
	}
	r.history.add(operation)
	return !outcome.IsDone
}

// repeat sends something again that was answered long ago. The answer must be the same, and the models find a second effect.
func (r *Round) repeat(client *Client) {
	if len(client.answered) == 0 {
		return
	}
	old := client.answered[client.random.IntN(len(client.answered))]
	old.request.givesUp = 1
	outcome := client.try(r, old.request)
	if outcome.IsDone && string(outcome.Reply.Body) != old.answer {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.wrong = append(r.wrong, fmt.Sprintf("%s %s with the key %s was answered with %s, and later with %s (%v)",
			old.request.path, old.request.body, old.request.key, old.answer, outcome.Reply.Body, outcome.Attempts))
	}
}

// outputOf is the reply as the models write it. A field that is not there is null.
func outputOf(reply Reply) Output {
	if reply.Status == 404 {
		return "null"
	}
	return Output(strings.Join(strings.Fields(string(reply.Body)), ""))
}

func (r *Round) noteSlow(operation Operation, faults string, isDone bool) {
	took := (operation.Return - operation.Call) / 1e6
	if took < 4000 {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.slowest = append(r.slowest, slowOperation{took, operation.Object + " " + describe(operation.Input, operation.Output), faults, operation.Attempts, operation.Call / 1e6, isDone})
	slices.SortFunc(r.slowest, func(a, b slowOperation) int { return int(b.Ms - a.Ms) })
	r.slowest = r.slowest[:min(len(r.slowest), 20)]
}

// post sends a message that counts an object up.
func (r *Round) post(client *Client, object string) {
	key := fmt.Sprintf("%s-%d-%d", r.name, client.number, r.unique.Add(1))
	request := Request{method: "POST", path: "/send/register/" + object + "/add", key: key, body: []byte("1"), limit: operationLimit, givesUp: 0.15}
	outcome := client.try(r, request)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.mail[object] == nil {
		r.mail[object] = &mail{}
	}
	if outcome.IsDone {
		client.remember(request, outcome.Reply)
		r.mail[object].sent++
	} else if outcome.IsOpen {
		r.mail[object].open++
	}
}

// Summary is what a round has found.
type Summary struct {
	Seed        uint64
	Verdict     Verdict
	Faults      int
	ReadyMs     int64 // from the end of all faults until all nodes are ready
	ReadMs      int64 // and until every object was read at every node
	Errors      map[string]int
	Unexpected  map[string][]string
	Slowest     []slowOperation
	Failures    []string
	HasNetwork  bool
	WallSeconds float64
	Latencies   map[string]*Latency `json:"-"`
}

// run makes a whole round: clients work while the cluster is disturbed.
func (r *Round) run(seed uint64, folder string, options Options, disturb func() error) Summary {
	var group sync.WaitGroup
	for number := range options.clients {
		group.Go(func() { r.work(number, seed, options.pause) })
	}
	summary := Summary{Seed: seed, HasNetwork: r.cluster.Network != nil}
	fail := func(format string, arguments ...any) {
		summary.Failures = append(summary.Failures, fmt.Sprintf(format, arguments...))
	}
	if err := disturb(); err != nil {
		fail("while the cluster was disturbed: %v", err)
	}
	if err := r.faults.whole(); err != nil {
		fail("a node does not come back: %v", err)
	}
	healed := time.Now()
	if !r.cluster.waitReady(wholeLimit) {
		fail("the nodes are not ready %v after all faults", wholeLimit)
	}
	summary.ReadyMs = time.Since(healed).Milliseconds()
	r.isOver.Store(true)
	group.Wait()
	summary.Failures = append(summary.Failures, r.wrong...)
	for _, failure := range r.readEverything() {
		fail("%s", failure)
	}
	summary.ReadMs = time.Since(healed).Milliseconds()
	for _, failure := range r.auditMail() {
		fail("%s", failure)
	}
	if options.lie != "" {
		r.history.lie(options.lie)
	}
	summary.Verdict, summary.Faults = r.history.judge(folder), len(r.faults.past)
	summary.Errors, summary.Unexpected, summary.Slowest = r.errors.counts, r.errors.unexpected, r.slowest
	summary.Latencies = r.latencies()
	keep(filepath.Join(folder, "history.json"), r.history.operations)
	summary.WallSeconds = time.Since(r.began).Seconds()
	keep(filepath.Join(folder, "summary.json"), summary)
	return summary
}

// readEverything reads each object at each node. These reads belong to the history, and the balances of a bank have the sum 0.
func (r *Round) readEverything() []string {
	objects := make(chan string)
	var group sync.WaitGroup
	var mutex sync.Mutex
	var failures []string
	for worker := range 4 {
		group.Go(func() {
			client := newClient(r.cluster, 500+worker)
			for object := range objects {
				for _, node := range r.cluster.Nodes {
					if failure := r.readAt(client, node, object); failure != "" {
						mutex.Lock()
						failures = append(failures, failure)
						mutex.Unlock()
					}
				}
			}
		})
	}
	for _, object := range r.history.objects() {
		objects <- object
	}
	close(objects)
	group.Wait()
	return failures
}

var readerOf = map[string]string{"register": "get", "counter": "sum", "set": "members", "list": "list", "group": "getAll", "bank": "getAll"}

func (r *Round) readAt(client *Client, node *Node, object string) string {
	input := Input{Handler: readerOf[kindOf(object)]}
	request := requestOf(object, input, "")
	call := time.Since(r.began)
	var reply Reply
	if !waitFor(20*time.Second, func() bool {
		call = time.Since(r.began)
		reply = client.once(node, request.method, request.path, "", request.body, attemptLimit)
		return reply.Status == 200
	}) {
		return fmt.Sprintf("node %d does not read %s: %s %s", node.Number, object, reply.what(), reply.Body)
	}
	operation := Operation{Object: object, Client: client.number, Input: input, Output: outputOf(reply), Call: int64(call), Return: int64(time.Since(r.began))}
	r.history.add(operation)
	if kindOf(object) == "bank" {
		var balances []int
		if err := json.Unmarshal(reply.Body, &balances); err != nil || sum(balances) != 0 {
			return fmt.Sprintf("node %d: the balances of %s have not the sum 0: %s", node.Number, object, reply.Body)
		}
	}
	return ""
}

func sum(numbers []int) int {
	total := 0
	for _, number := range numbers {
		total += number
	}
	return total
}

// auditMail waits until all messages have arrived, and counts them.
func (r *Round) auditMail() []string {
	client := newClient(r.cluster, 600)
	var failures []string
	for _, object := range slices.Sorted(maps.Keys(r.mail)) {
		counted, value := r.mail[object], 0
		waitFor(mailLimit, func() bool {
			request := requestOf(object, Input{Handler: "sum"}, "")
			reply := client.once(r.cluster.Nodes[0], request.method, request.path, "", request.body, attemptLimit)
			return reply.Status == 200 && json.Unmarshal(reply.Body, &value) == nil && value >= counted.sent
		})
		if value < counted.sent || value > counted.sent+counted.open {
			failures = append(failures, fmt.Sprintf("%s: %d messages have arrived; %d were sent, and %d perhaps", object, value, counted.sent, counted.open))
		}
	}
	return failures
}

// lie changes one reply, to show that the checker finds it: "value" changes what a read has seen, "stale" repeats an old one.
func (h *History) lie(how string) {
	for _, object := range h.objects() {
		var reads []int
		for at, one := range h.operations[object] {
			if one.Input.Handler == "get" && one.Return != never {
				reads = append(reads, at)
			}
		}
		if len(reads) < 20 {
			continue
		}
		victim, output := &h.operations[object][reads[len(reads)/2]], Output("424242")
		if how == "stale" {
			output = h.operations[object][reads[0]].Output
		}
		if victim.Output != output {
			fmt.Fprintf(os.Stderr, "lie: a read of %s at %.3f s saw %s, now %s\n", object, float64(victim.Call)/1e9, victim.Output, output)
			victim.Output = output
			return
		}
	}
}
