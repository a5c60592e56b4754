// Histories that no order explains: the checker has to reject each of them.
package main

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

func at(call, end int64, input Input, output Output) Operation {
	return Operation{Input: input, Output: output, Call: call, Return: end}
}

func put(number int) Input   { return Input{Handler: "put", Number: number} }
func read(name string) Input { return Input{Handler: name} }

func TestVerdicts(t *testing.T) {
	add := Input{Handler: "add", Number: 1}
	transfer := Input{Handler: "transfer", From: 0, To: 1, Number: 5}
	cases := []struct {
		name, kind string
		operations []Operation
		expected   porcupine.CheckResult
	}{
		{"a read of the newest", "register", []Operation{at(1, 2, put(1), "null"), at(3, 4, read("get"), "1")}, porcupine.Ok},
		{"a stale read", "register", []Operation{at(1, 2, put(1), "null"), at(3, 4, put(2), "null"), at(5, 6, read("state"), "1")}, porcupine.Illegal},
		{"a read of a write under way", "register", []Operation{at(1, 9, put(1), "null"), at(3, 4, read("get"), "1")}, porcupine.Ok},
		{"a write that is seen and is gone", "register", []Operation{at(1, never, put(1), ""), at(3, 4, read("get"), "1"), at(5, 6, read("get"), "null")}, porcupine.Illegal},
		{"an open write that comes late", "register", []Operation{at(1, never, put(1), ""), at(3, 4, read("get"), "null"), at(5, 6, read("get"), "1")}, porcupine.Ok},
		{"a swap that lies", "register", []Operation{at(1, 2, Input{Handler: "swap", Expected: "7", Number: 8}, "true")}, porcupine.Illegal},
		{"a lost increment", "counter", []Operation{at(1, 2, add, "1"), at(3, 4, add, "1")}, porcupine.Illegal},
		{"an increment made twice", "counter", []Operation{at(1, 2, add, "1"), at(3, 4, read("sum"), "2")}, porcupine.Illegal},
		{"an element that is lost", "set", []Operation{at(1, 2, Input{Handler: "insert", Number: 4}, "true"), at(3, 4, read("members"), "[]")}, porcupine.Illegal},
		{"another order than before", "list", []Operation{at(1, 9, Input{Handler: "append", Number: 1}, ""), at(1, 9, Input{Handler: "append", Number: 2}, ""), at(10, 11, read("list"), "[1,2]"), at(12, 13, read("list"), "[2,1]")}, porcupine.Illegal},
		{"half a transaction", "group", []Operation{at(1, never, Input{Handler: "putAll", Number: 3}, ""), at(2, 3, read("getAll"), "[3,null,3]")}, porcupine.Illegal},
		{"half a transfer", "bank", []Operation{at(1, never, transfer, ""), at(2, 3, read("getAll"), "[-5,null,null,null]")}, porcupine.Illegal},
		{"a transfer", "bank", []Operation{at(1, 2, transfer, "null"), at(2, 3, read("getAll"), "[-5,5,null,null]")}, porcupine.Ok},
	}
	for _, one := range cases {
		if found := check(one.kind, one.operations); found != one.expected {
			t.Errorf("%s: %s", one.name, found)
		}
	}
}

func TestShrinkKeepsWhatIsWrong(t *testing.T) {
	operations := []Operation{at(1, 2, put(1), "null"), at(3, 4, read("get"), "1"), at(5, 6, put(2), "null"),
		at(7, 8, read("get"), "1"), at(9, 10, put(3), "null"), at(11, 12, read("get"), "3")}
	small := shrink("register", operations)
	if len(small) != 3 || small[2].Output != "1" {
		t.Errorf("%v", small)
	}
}
