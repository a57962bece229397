package cli

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestTextsOfUsersSteerNoTerminal: -json printed U+009B, which begins a control sequence, and U+202E, which
// turns the direction of the text, as they are.
func TestTextsOfUsersSteerNoTerminal(t *testing.T) {
	const choice = "red\u009b31m\u202e\x7f\U000e0001 é 红"
	var out bytes.Buffer
	e := &Env{Out: &out, JSON: true}
	if err := e.Write(map[string]int{choice: 1}, nil); err != nil {
		t.Fatal(err)
	}
	const want = "{\n  \"red\\u009b31m\\u202e\\u007f\\udb40\\udc01 é 红\": 1\n}\n"
	var back map[string]int
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back[choice] != 1 || out.String() != want {
		t.Errorf("%q, %v, %v: want %q", out.String(), back, err, want)
	}
}
