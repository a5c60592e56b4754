// What the clients have seen, and whether any order of the operations explains it.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// An operation without an answer may take effect at any time, so it ends after all others.
const never = math.MaxInt64

// How long the search for an order may take, for each object.
const searchLimit = 30 * time.Second

// Operation is one line of a history. Times are nanoseconds since the round began.
type Operation struct {
	Object   string   `json:"object"`
	Client   int      `json:"client"`
	Input    Input    `json:"input"`
	Output   Output   `json:"output"`
	Call     int64    `json:"call"`
	Return   int64    `json:"return"`
	Attempts Attempts `json:"attempts"`
}

// History is shared by all clients of a round.
type History struct {
	mutex      sync.Mutex
	operations map[string][]Operation
}

func newHistory() *History {
	return &History{operations: map[string][]Operation{}}
}

func (h *History) add(operation Operation) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.operations[operation.Object] = append(h.operations[operation.Object], operation)
}

func (h *History) objects() []string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	var objects []string
	for object := range h.operations {
		objects = append(objects, object)
	}
	slices.Sort(objects)
	return objects
}

// Verdict is what became of the check of a whole history.
type Verdict struct {
	Objects, Operations, Open int
	Undecided                 []string
	Violations                []string
}

func kindOf(object string) string {
	kind, _, _ := strings.Cut(object, "-")
	return kind
}

func porcupineOperations(operations []Operation) []porcupine.Operation {
	var converted []porcupine.Operation
	for _, one := range operations {
		converted = append(converted, porcupine.Operation{
			ClientId: one.Client, Input: one.Input, Call: one.Call, Output: one.Output, Return: one.Return,
		})
	}
	return converted
}

func check(kind string, operations []Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(models[kind], porcupineOperations(operations), searchLimit)
}

// judge checks each object, and writes what is wrong into the folder.
func (h *History) judge(folder string) Verdict {
	var verdict Verdict
	for _, object := range h.objects() {
		operations := h.operations[object]
		verdict.Objects++
		verdict.Operations += len(operations)
		for _, one := range operations {
			if one.Return == never {
				verdict.Open++
			}
		}
		switch check(kindOf(object), operations) {
		case porcupine.Unknown:
			verdict.Undecided = append(verdict.Undecided, object)
		case porcupine.Illegal:
			verdict.Violations = append(verdict.Violations, explain(object, operations, folder))
		}
	}
	return verdict
}

// explain finds a small part of a history that no order explains, and keeps it as text, JSON and a page.
func explain(object string, operations []Operation, folder string) string {
	small := shrink(kindOf(object), operations)
	name := filepath.Join(folder, "violation-"+object)
	keep(name+".json", small)
	keep(name+"-all.json", operations)
	_, information := porcupine.CheckOperationsVerbose(models[kindOf(object)], porcupineOperations(small), searchLimit)
	if err := porcupine.VisualizePath(models[kindOf(object)], information, name+".html"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	var lines []string
	for _, one := range small[max(0, len(small)-12):] {
		lines = append(lines, "    "+one.line())
	}
	return fmt.Sprintf("%s: no order explains %d operations; the last of them:\n%s\n    (whole: %s.json)",
		object, len(small), strings.Join(lines, "\n"), name)
}

func (o Operation) line() string {
	end := "never"
	if o.Return != never {
		end = fmt.Sprintf("%.4f", float64(o.Return)/1e9)
	}
	return fmt.Sprintf("%.4f-%s s client %d %s %v", float64(o.Call)/1e9, end, o.Client, describe(o.Input, o.Output), o.Attempts)
}

// prefix is the history as it was known at an instant.
func prefix(operations []Operation, instant int64) []Operation {
	var known []Operation
	for _, one := range operations {
		if one.Call > instant {
			continue
		}
		if one.Return > instant {
			if isReading[one.Input.Handler] {
				continue
			}
			one.Output, one.Return = "", never
		}
		known = append(known, one)
	}
	return known
}

// shrink cuts off the end of a history, and then leaves out what has changed nothing, while no order explains the rest.
func shrink(kind string, operations []Operation) []Operation {
	var ends []int64
	for _, one := range operations {
		if one.Return != never {
			ends = append(ends, one.Return)
		}
	}
	slices.Sort(ends)
	isWrong := func(part []Operation) bool { return check(kind, part) == porcupine.Illegal }
	first, _ := slices.BinarySearchFunc(ends, true, func(instant int64, _ bool) int {
		if isWrong(prefix(operations, instant)) {
			return 0
		}
		return -1
	})
	if first < len(ends) {
		operations = prefix(operations, ends[first])
	}
	slices.SortFunc(operations, func(a, b Operation) int { return int(a.Call - b.Call) })
	for at := len(operations) - 1; at >= 0; at-- {
		if !isReading[operations[at].Input.Handler] && operations[at].Output != "false" {
			continue
		}
		if fewer := slices.Delete(slices.Clone(operations), at, at+1); isWrong(fewer) {
			operations = fewer
		}
	}
	return operations
}

func keep(path string, value any) {
	bytes, err := json.MarshalIndent(value, "", " ")
	if err == nil {
		err = os.WriteFile(path, bytes, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
