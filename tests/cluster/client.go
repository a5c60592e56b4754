// One client: it calls nodes in turn until one has an answer, always under the same key.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// An attempt ends after this time. The guide promises an answer "within a few seconds". --patience changes it.
var attemptLimit = 5 * time.Second

// Client is used by one goroutine at a time.
type Client struct {
	number   int
	cluster  *Cluster
	http     *http.Client
	random   *rand.Rand
	seen     map[string]Output // by object, what it has read last
	answered []answered
}

type answered struct {
	request Request
	answer  string
}

// How many answers a client remembers, to ask for them again.
const remembered = 100

func (c *Client) remember(request Request, reply Reply) {
	c.answered = append(c.answered, answered{request, string(reply.Body)})
	if len(c.answered) > remembered {
		c.answered = c.answered[1:]
	}
}

// Attempt is what one node made of one request.
type Attempt struct {
	Node int    `json:"node"`
	AtMs int64  `json:"at_ms"`
	Ms   int64  `json:"ms"`
	What string `json:"what"`
}

func (a Attempt) String() string { return fmt.Sprintf("n%d:%s:%dms", a.Node, a.What, a.Ms) }

// Attempts are printed without those in the middle.
type Attempts []Attempt

func (a Attempts) String() string {
	var told []string
	for at, one := range a {
		if at < 5 || at >= len(a)-3 {
			told = append(told, one.String())
		} else if at == 5 {
			told = append(told, fmt.Sprintf("(%d more)", len(a)-8))
		}
	}
	return strings.Join(told, " ")
}

// Reply is an attempt with its content. Status is 0 if nothing came.
type Reply struct {
	Status  int
	Code    string
	Body    []byte
	WasSent bool // some of the request may have reached the node
	Err     error
}

func newClient(cluster *Cluster, number int) *Client {
	dialer := net.Dialer{Timeout: time.Second}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 2}
	return &Client{number: number, cluster: cluster, http: &http.Client{Transport: transport},
		random: rand.New(rand.NewPCG(uint64(number), 1)), seen: map[string]Output{}}
}

func (c *Client) once(node *Node, method, path, key string, body []byte, limit time.Duration) Reply {
	var wasSent atomic.Bool
	limited, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	traced := httptrace.WithClientTrace(limited, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { wasSent.Store(true) }})
	request, err := http.NewRequestWithContext(traced, method, "http://"+node.HTTP+path, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	if c.cluster.Key != "" {
		request.Header.Set("Authorization", "Bearer "+c.cluster.Key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return Reply{WasSent: wasSent.Load(), Err: err}
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return Reply{WasSent: true, Err: err}
	}
	reply := Reply{Status: response.StatusCode, Body: content, WasSent: true}
	if response.StatusCode >= 400 {
		var problem struct {
			Code string `json:"code"`
		}
		_ = json.Unmarshal(content, &problem)
		reply.Code = problem.Code
	}
	return reply
}

// what names an outcome in few words.
func (r Reply) what() string {
	switch {
	case r.Status != 0 && r.Code != "":
		return r.Code
	case r.Status != 0:
		return fmt.Sprint(r.Status)
	case os.IsTimeout(r.Err) || errors.Is(r.Err, context.DeadlineExceeded):
		return "timeout"
	case !r.WasSent:
		return "unreachable"
	}
	return "broken"
}

// hadNoEffect says whether the node has promised that nothing happened, or cannot have seen the request.
func (r Reply) hadNoEffect() bool {
	return !r.WasSent || r.Code == "overloaded" || r.Code == "shutting-down" || r.Code == "wait-limit"
}

// Request is what a client wants done, and how long it tries.
type Request struct {
	method, path, key string
	body              []byte
	limit             time.Duration
	// After an answer that leaves the outcome open, the client gives up with this probability.
	givesUp float64
}

// Outcome is what became of a request in all its attempts.
type Outcome struct {
	Reply    Reply
	IsDone   bool
	IsOpen   bool // it may have taken effect, or may still
	Attempts Attempts
}

// try calls one node after the other.
func (c *Client) try(round *Round, request Request) Outcome {
	var outcome Outcome
	first := c.random.IntN(nodeCount)
	end := time.Now().Add(request.limit)
	for turn := 0; ; turn++ {
		node := c.cluster.Nodes[(first+turn)%nodeCount]
		began := time.Now()
		reply := c.once(node, request.method, request.path, request.key, request.body, attemptLimit)
		attempt := Attempt{node.Number, began.Sub(round.began).Milliseconds(), time.Since(began).Milliseconds(), reply.what()}
		outcome.Reply, outcome.Attempts = reply, append(outcome.Attempts, attempt)
		round.errors.note(round, attempt, reply, request)
		if reply.Status >= 200 && reply.Status < 300 || reply.Status == 404 && request.method == "GET" {
			outcome.IsDone = true
			return outcome
		}
		if !reply.hadNoEffect() {
			outcome.IsOpen = true
			if c.random.Float64() < request.givesUp {
				return outcome
			}
		}
		if time.Now().After(end) {
			return outcome
		}
		time.Sleep(time.Duration(10+c.random.IntN(90)) * time.Millisecond)
	}
}
