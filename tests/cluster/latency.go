// How long operations take under each kind of fault, without the time that they wait at nodes that are paused.
package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A fault is felt for some time after its end.
const feltAfter = 1500 * time.Millisecond

// Latency is that of the operations that met one kind of fault and no other.
type Latency struct{ times []int64 }

// met names the only fault that an operation has met.
func (f *Faults) met(call, end time.Duration) string {
	name := "no fault"
	for _, one := range f.past {
		if call > one.to+feltAfter || end < one.from {
			continue
		}
		if name != "no fault" {
			return "several faults"
		}
		name = one.name
	}
	return name
}

// waited is how long an operation waited at nodes that were paused. That says nothing about the others.
func (f *Faults) waited(attempts Attempts) int64 {
	var waited int64
	for _, attempt := range attempts {
		call, node := time.Duration(attempt.AtMs)*ms, fmt.Sprintf("n%d", attempt.Node)
		for _, one := range f.past {
			isPause := strings.HasPrefix(one.name, "pause") || one.name == "flicker"
			if isPause && strings.Contains(one.told, node) && call < one.to && call+time.Duration(attempt.Ms)*ms > one.from {
				waited += attempt.Ms
				break
			}
		}
	}
	return waited
}

// latencies is told when all clients have ended.
func (r *Round) latencies() map[string]*Latency {
	found := map[string]*Latency{}
	for _, operations := range r.history.operations {
		for _, one := range operations {
			if one.Return == never || len(one.Attempts) == 0 {
				continue
			}
			name := r.faults.met(time.Duration(one.Call), time.Duration(one.Return))
			took := (one.Return-one.Call)/1e6 - r.faults.waited(one.Attempts)
			merge(found, name, []int64{max(took, 0)})
		}
	}
	return found
}

// merge adds times to those of a name.
func merge(all map[string]*Latency, name string, times []int64) {
	one := all[name]
	if one == nil {
		one = &Latency{}
		all[name] = one
	}
	one.times = append(one.times, times...)
}

func printLatencies(all map[string]*Latency) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one := all[name]
		slices.Sort(one.times)
		count := len(one.times)
		fmt.Printf("  %-18s %6d operations, median %d ms, 99 %% %d ms, longest %d ms\n", name, count, one.times[count/2], one.times[count*99/100], one.times[count-1])
	}
}
