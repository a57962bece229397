package script

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestCallsBehindAHangUpHaveNotRun: the server hangs up behind its answer to a command that is too long for a
// client without a login. The calls behind it in the pipeline heard of a lost connection, and were undone.
func TestCallsBehindAHangUpHaveNotRun(t *testing.T) {
	server := redistest.StartServer(t)
	if err := server.Client(t).ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(server.Options().Simple())
	defer func() { _ = rdb.Close() }()
	short := []any{"eval", "return 1", 1, "{a}"}
	long := slices.Concat(short, []any{"1", "2", "3", "4", "5", "6", "7"})
	calls := make([]*queued[sending], 5)
	for i, words := range [][]any{short, long, long, short, long} {
		calls[i] = &queued[sending]{what: sending{rdb, redis.NewCmd(t.Context(), words...)}, ctx: t.Context(),
			batch: &batch{}, end: time.Now().Add(time.Minute)}
	}
	send(calls)
	for i, c := range calls {
		want := "unauthenticated multibulk length"
		if i == 0 {
			want = "NOAUTH"
		}
		if err := notRun(c.err, false); !errors.As(err, new(notRunError)) || !isHopeless(err) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("call %d: %v", i, c.err)
		}
	}
}

// TestCallsBehindAnAnswerMayHaveRun: only a server that hangs up behind an answer has not read on.
func TestCallsBehindAnAnswerMayHaveRun(t *testing.T) {
	for _, c := range []struct {
		first, second error
		ran           bool
	}{
		{serverError("ERR Protocol error: unauthenticated multibulk length"), io.EOF, false},
		{serverError("ERR Protocol error: unauthenticated multibulk length"), errors.New("i/o timeout"), true},
		{serverError("NOAUTH Authentication required."), io.EOF, true},
		{serverError("READONLY You can't write against a read only replica."), io.EOF, true},
	} {
		calls := make([]*queued[sending], 2)
		for i, err := range []error{c.first, c.second} {
			calls[i] = &queued[sending]{what: sending{cmd: redis.NewCmd(t.Context(), "eval")}, batch: &batch{}}
			calls[i].what.cmd.SetErr(err)
		}
		receive(calls, c.first)
		if err := calls[1].err; isRefusal(err) == c.ran {
			t.Errorf("%v after %v: may have run: %t, want %t", c.second, c.first, !c.ran, c.ran)
		}
	}
}

// TestAProbeSaysWhyConnectionsAreLost: a caller may hear no more of a refused login than that the connection
// has ended. The probe that this starts finds out, and opens the breaker.
func TestAProbeSaysWhyConnectionsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProbedServer()
		s.finds(serverError("NOAUTH Authentication required."))
		if !s.call(t.Context(), io.EOF) {
			t.Fatal("the first call was not sent")
		}
		synctest.Wait()
		if s.call(t.Context(), nil) {
			t.Error("calls are sent after the probe")
		}
		if len(s.told) != 1 || !s.told[0].change.Open || !strings.Contains(s.told[0].err.Error(), "NOAUTH") {
			t.Errorf("%+v", s.told)
		}
		s.finds(io.EOF) // says no more than the call has
		<-time.After(time.Minute)
		s.finds(nil)
		redistest.Eventually(t, time.Minute, func() bool { return s.call(t.Context(), nil) }, "the breaker closes")
		s.finds(io.EOF)
		<-time.After(time.Minute)
		s.call(t.Context(), io.EOF)
		synctest.Wait()
		if !s.call(t.Context(), nil) {
			t.Error("a probe whose connection was lost opened the breaker")
		}
	})
}
