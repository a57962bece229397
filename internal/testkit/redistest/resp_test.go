package redistest

import (
	"bufio"
	"strings"
	"testing"
)

func TestReadMessageKeepsMessagesApart(t *testing.T) {
	messages := []string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
		"*1\r\n$4\r\n\r\n\r\n\r\n", // a string that looks like line ends
		"+OK\r\n", "-ERR no\r\n", ":-1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n",
		"$-1\r\n", "$0\r\n\r\n", "*-1\r\n", "*0\r\n",
		"*2\r\n*1\r\n:1\r\n%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n",
		"|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n", // attributes and what they belong to
		">2\r\n+message\r\n$1\r\nm\r\n",
		"=5\r\ntxt:a\r\n", "!3\r\nERR\r\n",
	}
	r := bufio.NewReader(strings.NewReader(strings.Join(messages, "")))
	for _, want := range messages {
		got, err := readMessage(r)
		if string(got) != want || err != nil {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
		if isPush(got) != (want[0] == '>') {
			t.Errorf("isPush(%q) = %v", got, isPush(got))
		}
	}
}

func TestReadMessageRejectsWhatIsNotWhole(t *testing.T) {
	for _, text := range []string{"", "*", "*\n", "*x\r\n", "*2\r\n:1\r\n", "$5\r\nabc\r\n", "+OK"} {
		if got, err := readMessage(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%q was read as %q", text, got)
		}
	}
}
