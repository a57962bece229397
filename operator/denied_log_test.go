package operator_test

import (
	"bytes"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// TestDeniedActionsDoNotFloodTheLog: a denial was logged for each request, with the names that its sender had
// chosen.
func TestDeniedActionsDoNotFloodTheLog(t *testing.T) {
	logged := &lines{}
	before, writer, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.NewTextHandler(logged, nil)))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(writer) // SetDefault has changed it, and does not change it back
		log.SetFlags(flags)
	})
	d := newDesk(t, redistest.Mini(t))
	const each = 200
	for i := range each {
		for _, path := range []string{"/limit/peek", "/sale/status", fmt.Sprintf("/chosen-%d/peek", i)} {
			r := get(path, "actor=ann", "item=tv")
			r.SetBasicAuth("mallory", "")
			d.want(r, http.StatusForbidden, "")
		}
	}
	text := logged.text.String()
	if n := strings.Count(text, "operator action denied"); n != 3 {
		t.Errorf("%d lines for %d denials of three kinds, want 3", n, 3*each)
	}
	for _, one := range []string{"guard=limit action=peek", "guard=sale action=status", `guard="" action=""`} {
		if strings.Count(text, one) != 1 {
			t.Errorf("no line, or several, with %s", one)
		}
	}
	if strings.Contains(text, "chosen-") {
		t.Error("the log has a name that the client chose")
	}
}
