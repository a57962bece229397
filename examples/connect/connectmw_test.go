package connectmw_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	connectmw "github.com/gatehouse-go/gatehouse/examples/connect"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// The procedures, without generated code: they take a text and return it.
const (
	echo  = "/test.Echo/Once"
	watch = "/test.Echo/Watch"
)

type text = wrapperspb.StringValue

func newGate(t *testing.T) *core.Engine {
	b := redistest.Single(t)
	return core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
}

// service is what the procedures do.
type service struct{ once, watch func(context.Context) error }

// handler serves the procedures behind the rules.
func (s *service) handler(rules ...connectmw.Rule) http.Handler {
	options := []connect.HandlerOption{connect.WithRecover(
		func(context.Context, connect.Spec, http.Header, any) error {
			return connect.NewError(connect.CodeInternal, errors.New("the handler has panicked"))
		},
	)}
	for _, rule := range rules {
		options = append(options, connect.WithInterceptors(connectmw.Interceptor(rule)))
	}
	mux := http.NewServeMux()
	mux.Handle(echo, connect.NewUnaryHandler(echo,
		func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
			if s.once != nil {
				if err := s.once(ctx); err != nil {
					return nil, err
				}
			}
			return connect.NewResponse(req.Msg), nil
		}, options...))
	mux.Handle(watch, connect.NewServerStreamHandler(watch,
		func(ctx context.Context, req *connect.Request[text], stream *connect.ServerStream[text]) error {
			if err := stream.Send(req.Msg); err != nil {
				return err
			}
			return s.watch(ctx)
		}, options...))
	return mux
}

// serve starts a server that talks HTTP/1.1 and HTTP/2.
func serve(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// each runs a test with the protocols that clients speak.
func each(t *testing.T, f func(t *testing.T, protocol connect.ClientOption)) {
	for name, protocol := range map[string]connect.ClientOption{
		"connect": connect.WithProtoJSON(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(),
	} {
		t.Run(name, func(t *testing.T) { f(t, protocol) })
	}
}

func call(t *testing.T, server *httptest.Server, protocol connect.ClientOption, key string) error {
	t.Helper()
	client := connect.NewClient[text, text](server.Client(), server.URL+echo, protocol)
	req := connect.NewRequest(wrapperspb.String("hello"))
	req.Header().Set("X-Api-Key", key)
	resp, err := client.CallUnary(t.Context(), req)
	if err == nil && resp.Msg.Value != "hello" {
		t.Errorf("the answer is %q", resp.Msg.Value)
	}
	return err
}

func wantCode(t *testing.T, what string, err error, want connect.Code) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func wantOK(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// delays returns the delay that an error tells, in its detail and in Retry-After.
func delays(err error) (detail time.Duration, header string) {
	var e *connect.Error
	if !errors.As(err, &e) {
		return 0, ""
	}
	for _, d := range e.Details() {
		if value, err := d.Value(); err == nil {
			if info, ok := value.(*errdetails.RetryInfo); ok {
				detail = info.RetryDelay.AsDuration()
			}
		}
	}
	return detail, e.Meta().Get("Retry-After")
}

func TestCallsAreLimitedByKeyAndProcedure(t *testing.T) {
	each(t, func(t *testing.T, protocol connect.ClientOption) {
		calls := limit.NewSlidingWindow(newGate(t), "calls", limit.PerHour(2))
		key := connectmw.Header("X-Api-Key")
		server := serve(t, new(service).handler(connectmw.Rule{Guard: calls, Who: key, What: connectmw.Procedure}))
		wantOK(t, "the first", call(t, server, protocol, "ann"))
		wantOK(t, "the second", call(t, server, protocol, "ann"))
		refused := call(t, server, protocol, "ann")
		wantCode(t, "the third", refused, connect.CodeResourceExhausted)
		detail, header := delays(refused)
		seconds, err := strconv.Atoi(header)
		if detail < 59*time.Minute || detail > time.Hour || err != nil || seconds < 3540 || seconds > 3600 {
			t.Errorf("the client gets %v and %q", detail, header)
		}
		wantOK(t, "another key", call(t, server, protocol, "bob"))
		wantCode(t, "no key", call(t, server, protocol, ""), connect.CodeUnauthenticated)
		d, err := calls.Peek(t.Context(), core.Attempt{Actor: "bob", Resource: echo})
		if err != nil || d.Remaining != 1 {
			t.Errorf("%d left, %v: want that bob has used one of two", d.Remaining, err)
		}
	})
}

// TestARefusalIsA429OfHTTP: a client without a library reads the status and Retry-After.
func TestARefusalIsA429OfHTTP(t *testing.T) {
	calls := limit.NewSlidingWindow(newGate(t), "calls", limit.PerHour(1))
	server := serve(t, new(service).handler(connectmw.Rule{Guard: calls, Who: connectmw.Peer}))
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		body := bytes.NewBufferString(`"hello"`)
		resp, err := server.Client().Post(server.URL+echo, "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want || (want != http.StatusOK) != (resp.Header.Get("Retry-After") != "") {
			t.Errorf("%s, Retry-After %q: %s", resp.Status, resp.Header.Get("Retry-After"), answer)
		}
	}
	d, err := calls.Peek(t.Context(), core.Attempt{Actor: "127.0.0.1"})
	if err != nil || d.Remaining != 0 {
		t.Errorf("%d left, %v: want that the address is the actor", d.Remaining, err)
	}
}

func TestPeersAreAddressesOrNetworks(t *testing.T) {
	for addr, want := range map[string]string{
		"203.0.113.7:443": "203.0.113.7", "[::ffff:203.0.113.7]:443": "203.0.113.7",
		"[2001:db8:1:2:3::4]:443": "2001:db8:1:2::/64", "[fe80::1%eth0]:443": "fe80::/64", "@": "",
	} {
		got, err := connectmw.Peer(connectmw.Call{Peer: connect.Peer{Addr: addr}})
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s is %q, %v: want %q", addr, got, err, want)
		}
	}
}

func TestAFailedCallGivesItsClaimBack(t *testing.T) {
	each(t, func(t *testing.T, protocol connect.ClientOption) {
		gate, s, key := newGate(t), new(service), connectmw.Header("X-Api-Key")
		server := serve(t, s.handler(
			connectmw.Rule{Guard: semaphore.New(gate, "slots", semaphore.Options{Max: 1}), Who: key},
			connectmw.Rule{Guard: votes.New(gate, "polls", votes.Options{}), Who: key, What: connectmw.Procedure},
		))
		s.once = func(context.Context) error {
			return connect.NewError(connect.CodeNotFound, errors.New("there is no such poll"))
		}
		wantCode(t, "a handler that fails", call(t, server, protocol, "ann"), connect.CodeNotFound)
		s.once = func(context.Context) error { panic("of the handler") }
		wantCode(t, "a handler that panics", call(t, server, protocol, "ann"), connect.CodeInternal)
		s.once = nil
		wantOK(t, "a handler that works", call(t, server, protocol, "ann"))
		again := call(t, server, protocol, "ann")
		wantCode(t, "a second vote", again, connect.CodeAlreadyExists)
		if detail, header := delays(again); detail != 0 || header != "" {
			t.Errorf("the client gets %v and %q", detail, header)
		}
	})
}

func TestTheClaimOfAStreamEndsWithIt(t *testing.T) {
	each(t, func(t *testing.T, protocol connect.ClientOption) {
		slots := semaphore.New(newGate(t), "slots", semaphore.Options{Max: 1, Lease: 3 * time.Second})
		s := &service{watch: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		server := serve(t, s.handler(connectmw.Rule{Guard: slots, Who: connectmw.Header("X-Api-Key")}))
		client := connect.NewClient[text, text](server.Client(), server.URL+watch, protocol)
		open := func(key string) (*connect.ServerStreamForClient[text], context.CancelFunc, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			req := connect.NewRequest(wrapperspb.String("hello"))
			req.Header().Set("X-Api-Key", key)
			stream, err := client.CallServerStream(ctx, req)
			if err == nil && !stream.Receive() {
				err = stream.Err()
			}
			return stream, cancel, err
		}
		_, cancel, err := open("ann")
		wantOK(t, "a stream", err)
		_, _, err = open("bob")
		wantCode(t, "a stream beside it", err, connect.CodeResourceExhausted)
		if detail, _ := delays(err); detail <= 0 || detail > 3*time.Second {
			t.Errorf("the client gets %v", detail)
		}
		cancel()
		var stream *connect.ServerStreamForClient[text]
		redistest.Eventually(t, time.Minute, func() bool {
			stream, _, err = open("bob")
			return err == nil
		}, "the permit to come back")
		if _, err := slots.Evict(t.Context(), core.Attempt{Actor: "bob"}); err != nil {
			t.Fatal(err)
		}
		if stream.Receive() {
			t.Error("a stream that lost its permit goes on")
		}
		wantCode(t, "a stream that lost its permit", stream.Err(), connect.CodeAborted)
	})
}

func TestOutage(t *testing.T) {
	redis := redistest.StartServer(t)
	gate := core.New(redis.Client(t), core.WithPrefix("outage"), core.WithDeadline(time.Second))
	who := connectmw.Header("X-Api-Key")
	local := serve(t, new(service).handler(connectmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "calls", limit.PerHour(3)), Who: who,
	}))
	closed := serve(t, new(service).handler(connectmw.Rule{
		Guard: semaphore.New(gate, "slots", semaphore.Options{Max: 1}), Who: who,
	}))
	redis.Kill()
	each(t, func(t *testing.T, protocol connect.ClientOption) {
		wantCode(t, "a guard that fails closed", call(t, closed, protocol, "ann"), connect.CodeUnavailable)
		wantOK(t, "a limit", call(t, local, protocol, "ann"))
	})
	wantCode(t, "a limit, used up in the process", call(t, local, connect.WithGRPC(), "ann"),
		connect.CodeResourceExhausted)
}

// TestTheCodeOfARuleInFront: clients make a code of their own of an answer in HTTP.
func TestTheCodeOfARuleInFront(t *testing.T) {
	each(t, func(t *testing.T, protocol connect.ClientOption) {
		calls := limit.NewSlidingWindow(newGate(t), "calls", limit.PerHour(1))
		server := serve(t, ratelimit.HTTP(ratelimit.Rule{Guard: calls, Who: keyfuncs.IP()})(new(service).handler()))
		wantOK(t, "an allowed call", call(t, server, protocol, "ann"))
		refused := call(t, server, protocol, "ann")
		wantCode(t, "a call that gets 429", refused, connect.CodeUnavailable)
		if detail, _ := delays(refused); detail != 0 {
			t.Errorf("the client gets %v", detail)
		}
	})
}
