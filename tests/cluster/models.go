// What each kind of object may answer, one operation after the other.
package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Input is one operation of a client.
type Input struct {
	Handler  string `json:"handler"`
	Number   int    `json:"number,omitempty"`
	Expected string `json:"expected,omitempty"` // of swap: "null" or a number
	From     int    `json:"from,omitempty"`     // of transfer: which account
	To       int    `json:"to,omitempty"`
}

// Output is the JSON of the reply. It is empty if nobody knows the reply.
type Output string

// States are texts, so that equal states are equal Go values.
type step func(state string, input Input, output Output) (bool, string)

const groupSize = 3
const bankSize = 4

var isReading = map[string]bool{
	"get": true, "state": true, "sum": true, "members": true, "list": true, "getAll": true,
}

// The model of each kind of object, by the first part of the object's name.
var models = map[string]porcupine.Model{
	"register": model("null", stepRegister),
	"counter":  model("0", stepCounter),
	"set":      model("[]", stepSet),
	"list":     model("[]", stepList),
	"group":    model("null", stepGroup),
	"bank":     model("[null,null,null,null]", stepBank),
}

func model(initial string, step step) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, output any) (bool, any) {
			return step(state.(string), input.(Input), output.(Output))
		},
		DescribeOperation: func(input, output any) string {
			return describe(input.(Input), output.(Output))
		},
	}
}

func describe(input Input, output Output) string {
	arguments, _ := json.Marshal(input)
	if output == "" {
		output = "?"
	}
	return fmt.Sprintf("%s → %s", arguments, output)
}

// answers says whether the reply may be this one.
func (output Output) answers(expected string) bool {
	return output == "" || string(output) == expected
}

func stepRegister(state string, input Input, output Output) (bool, string) {
	switch input.Handler {
	case "put":
		return output.answers("null"), strconv.Itoa(input.Number)
	case "swap":
		if state != input.Expected {
			return output.answers("false"), state
		}
		return output.answers("true"), strconv.Itoa(input.Number)
	}
	return output.answers(state), state
}

func stepCounter(state string, input Input, output Output) (bool, string) {
	if input.Handler == "add" {
		sum, _ := strconv.Atoi(state)
		state = strconv.Itoa(sum + input.Number)
	}
	return output.answers(state), state
}

func stepSet(state string, input Input, output Output) (bool, string) {
	elements := numbers(state)
	place, found := slices.BinarySearch(elements, input.Number)
	switch input.Handler {
	case "insert":
		if !found {
			state = text(slices.Insert(elements, place, input.Number))
		}
		return output.answers(strconv.FormatBool(!found)), state
	case "remove":
		if found {
			state = text(slices.Delete(elements, place, place+1))
		}
		return output.answers(strconv.FormatBool(found)), state
	}
	return output.answers(state), state
}

func stepList(state string, input Input, output Output) (bool, string) {
	if input.Handler == "append" {
		elements := append(numbers(state), input.Number)
		return output.answers(strconv.Itoa(len(elements))), text(elements)
	}
	return output.answers(state), state
}

// A group is several keys that always get the same value. A reader must see the same in all of them.
func stepGroup(state string, input Input, output Output) (bool, string) {
	if input.Handler == "putAll" {
		return output.answers("null"), strconv.Itoa(input.Number)
	}
	return output.answers("[" + strings.Repeat(state+",", groupSize-1) + state + "]"), state
}

// A bank is several accounts. Only transfers change them, so their sum is constant in each state.
func stepBank(state string, input Input, output Output) (bool, string) {
	if input.Handler != "transfer" {
		return output.answers(state), state
	}
	var balances [bankSize]*int
	if json.Unmarshal([]byte(state), &balances) != nil {
		panic("a state is what a step has made")
	}
	change := func(account, amount int) {
		if balances[account] != nil {
			amount += *balances[account]
		}
		balances[account] = &amount
	}
	change(input.From, -input.Number)
	change(input.To, input.Number)
	next, _ := json.Marshal(balances)
	return output.answers("null"), string(next)
}

func numbers(state string) []int {
	var elements []int
	if json.Unmarshal([]byte(state), &elements) != nil {
		panic("a state is what a step has made")
	}
	return elements
}

func text(elements []int) string {
	if len(elements) == 0 {
		return "[]"
	}
	bytes, _ := json.Marshal(elements)
	return string(bytes)
}
