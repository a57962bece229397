package grpcmw_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	grpcmw "github.com/gatehouse-go/gatehouse/examples/grpc"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const method = "/grpc.health.v1.Health/Check"

// service is a gRPC service whose methods the tests write.
type service struct {
	healthpb.UnimplementedHealthServer
	check func(context.Context) error
	watch func(context.Context) error
}

func (s *service) Check(
	ctx context.Context, _ *healthpb.HealthCheckRequest,
) (*healthpb.HealthCheckResponse, error) {
	if s.check != nil {
		if err := s.check(ctx); err != nil {
			return nil, err
		}
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// Watch sends one message, so that its client knows that it runs.
func (s *service) Watch(_ *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	if err := stream.Send(&healthpb.HealthCheckResponse{}); err != nil {
		return err
	}
	return s.watch(stream.Context())
}

func newGate(t *testing.T) *core.Engine {
	b := redistest.Single(t)
	return core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
}

// serve starts a server with the rules, and returns a client of it.
func serve(t *testing.T, s *service, rules ...grpcmw.Rule) healthpb.HealthClient {
	t.Helper()
	unary, streams := []grpc.UnaryServerInterceptor{recovers}, []grpc.StreamServerInterceptor(nil)
	for _, rule := range rules {
		unary, streams = append(unary, grpcmw.Unary(rule)), append(streams, grpcmw.Stream(rule))
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(streams...))
	healthpb.RegisterHealthServer(server, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return dial(t, listener.Addr().String())
}

func dial(t *testing.T, addr string) healthpb.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// recovers answers panics, as servers do.
func recovers(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (resp any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "the handler has panicked")
		}
	}()
	return handler(ctx, req)
}

func as(t *testing.T, key string) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "x-api-key", key)
}

func check(t *testing.T, client healthpb.HealthClient, key string) error {
	_, err := client.Check(as(t, key), &healthpb.HealthCheckRequest{})
	return err
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// details returns the reason and the delay that a status tells.
func details(err error) (reason string, delay time.Duration) {
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			reason = d.Reason
		case *errdetails.RetryInfo:
			delay = d.RetryDelay.AsDuration()
		}
	}
	return reason, delay
}

func TestCallsAreLimitedByKeyAndMethod(t *testing.T) {
	calls := limit.NewSlidingWindow(newGate(t), "calls", limit.PerHour(2))
	rule := grpcmw.Rule{Guard: calls, Who: grpcmw.Metadata("x-api-key"), What: grpcmw.Method}
	watch := func(context.Context) error { return nil }
	client := serve(t, &service{watch: watch}, rule)
	for range 2 {
		wantCode(t, "a call", check(t, client, "ann"), codes.OK)
	}
	refused := check(t, client, "ann")
	wantCode(t, "the third", refused, codes.ResourceExhausted)
	if reason, delay := details(refused); reason != "LIMITED" || delay < 59*time.Minute || delay > time.Hour {
		t.Errorf("the client gets %q and %v", reason, delay)
	}
	wantCode(t, "another key", check(t, client, "bob"), codes.OK)
	wantCode(t, "no key", check(t, client, ""), codes.Unauthenticated)
	stream, err := client.Watch(as(t, "ann"), &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "another method", err, codes.OK)
	d, err := calls.Peek(t.Context(), core.Attempt{Actor: "bob", Resource: method})
	if err != nil || d.Remaining != 1 {
		t.Errorf("%d left, %v: want that bob has used one of two", d.Remaining, err)
	}
}

func TestConnectionsOfAPeerShareALimit(t *testing.T) {
	calls := limit.NewSlidingWindow(newGate(t), "peers", limit.PerHour(2))
	unguarded := "/grpc.health.v1.Health/List"
	client := serve(t, &service{}, grpcmw.Rule{
		Guard: calls, Who: grpcmw.Peer, When: func(method string) bool { return method != unguarded },
	})
	for range 5 { // it has no handler, and no rule
		_, err := client.List(as(t, "ann"), &healthpb.HealthListRequest{})
		wantCode(t, "a method without a rule", err, codes.Unimplemented)
	}
	wantCode(t, "the first", check(t, client, "ann"), codes.OK)
	wantCode(t, "the second", check(t, client, "bob"), codes.OK)
	wantCode(t, "the third", check(t, client, "cid"), codes.ResourceExhausted)
	d, err := calls.Peek(t.Context(), core.Attempt{Actor: "127.0.0.1"})
	if err != nil || d.Remaining != 0 {
		t.Errorf("%d left, %v: want that the address is the actor", d.Remaining, err)
	}
}

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func TestPeersAreAddressesOrNetworks(t *testing.T) {
	for addr, want := range map[string]string{
		"203.0.113.7:443": "203.0.113.7", "[::ffff:203.0.113.7]:443": "203.0.113.7",
		"[2001:db8:1:2:3::4]:443": "2001:db8:1:2::/64", "[fe80::1%eth0]:443": "fe80::/64", "@": "",
	} {
		got, err := grpcmw.Peer(peer.NewContext(t.Context(), &peer.Peer{Addr: textAddr(addr)}), method)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s is %q, %v: want %q", addr, got, err, want)
		}
	}
}

func TestAFailedCallGivesItsClaimBack(t *testing.T) {
	gate := newGate(t)
	s := new(service)
	who, slots := grpcmw.Metadata("x-api-key"), semaphore.New(gate, "slots", semaphore.Options{Max: 1})
	client := serve(t, s, grpcmw.Rule{Guard: slots, Who: who}, grpcmw.Rule{
		Guard: votes.New(gate, "polls", votes.Options{}), Who: who, What: grpcmw.Method,
	})
	s.check = func(context.Context) error { return status.Error(codes.NotFound, "there is no such poll") }
	wantCode(t, "a handler that fails", check(t, client, "ann"), codes.NotFound)
	s.check = func(context.Context) error { panic("of the handler") }
	wantCode(t, "a handler that panics", check(t, client, "ann"), codes.Internal)
	s.check = nil
	wantCode(t, "a handler that works", check(t, client, "ann"), codes.OK)
	again := check(t, client, "ann")
	wantCode(t, "a second vote", again, codes.AlreadyExists)
	if reason, delay := details(again); reason != "DUPLICATE" || delay != 0 {
		t.Errorf("the client gets %q and %v", reason, delay)
	}
}

// TestALimitStandsLast: a limit in front of a guard that refuses has counted the call.
func TestALimitStandsLast(t *testing.T) {
	gate, who := newGate(t), grpcmw.Metadata("x-api-key")
	slots := semaphore.New(gate, "slots", semaphore.Options{Max: 1})
	calls := limit.NewSlidingWindow(gate, "calls", limit.PerHour(9))
	held, err := slots.Check(t.Context(), core.Attempt{Actor: "bob"})
	if err != nil || !held.Allowed {
		t.Fatal(held, err)
	}
	t.Cleanup(func() { _ = slots.Settle(context.Background(), held, core.Rollback) })
	one, other := grpcmw.Rule{Guard: slots, Who: who}, grpcmw.Rule{Guard: calls, Who: who}
	for i, rules := range [][]grpcmw.Rule{{one, other}, {other, one}} {
		refused := check(t, serve(t, new(service), rules...), "ann")
		wantCode(t, "a call without a permit", refused, codes.ResourceExhausted)
		d, err := calls.Peek(t.Context(), core.Attempt{Actor: "ann"})
		if want := int64(9 - i); err != nil || d.Remaining != want {
			t.Errorf("%d left, %v: want %d", d.Remaining, err, want)
		}
	}
}

func TestAHandlersOwnRefusalIsOneOfTheClient(t *testing.T) {
	gate := newGate(t)
	exports := limit.NewSlidingWindow(gate, "exports", limit.PerHour(1))
	s := &service{check: func(ctx context.Context) error {
		return core.Do(ctx, exports, core.Attempt{Actor: "ann"}, func(context.Context) error { return nil })
	}}
	client := serve(t, s, grpcmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "calls", limit.PerHour(9)), Who: grpcmw.Peer,
	})
	wantCode(t, "the first", check(t, client, "ann"), codes.OK)
	wantCode(t, "the second", check(t, client, "ann"), codes.ResourceExhausted)
}

func TestTheClaimOfAStreamEndsWithIt(t *testing.T) {
	slots := semaphore.New(newGate(t), "slots", semaphore.Options{Max: 1, Lease: 3 * time.Second})
	ended := make(chan error, 1)
	s := &service{watch: func(ctx context.Context) error {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return status.FromContextError(ctx.Err()).Err()
	}}
	client := serve(t, s, grpcmw.Rule{Guard: slots, Who: grpcmw.Metadata("x-api-key")})
	watch := func(key string) (stream healthpb.Health_WatchClient, cancel context.CancelFunc, err error) {
		ctx, cancel := context.WithCancel(as(t, key))
		stream, err = client.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return stream, cancel, err
	}
	_, cancel, err := watch("ann")
	wantCode(t, "a stream", err, codes.OK)
	_, cancelBob, err := watch("bob")
	defer cancelBob()
	wantCode(t, "a stream beside it", err, codes.ResourceExhausted)
	if reason, delay := details(err); reason != "BUSY" || delay <= 0 {
		t.Errorf("the client gets %q and %v", reason, delay)
	}
	cancel()
	<-ended
	var stream healthpb.Health_WatchClient
	redistest.Eventually(t, time.Minute, func() bool {
		stream, cancelBob, err = watch("bob")
		return err == nil
	}, "the permit to come back")
	defer cancelBob()

	if _, err := slots.Evict(t.Context(), core.Attempt{Actor: "bob"}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantCode(t, "a stream that lost its permit", err, codes.Aborted)
	<-ended
}

func TestOutage(t *testing.T) {
	server := redistest.StartServer(t)
	gate := core.New(server.Client(t), core.WithPrefix("outage"), core.WithDeadline(time.Second))
	who := grpcmw.Metadata("x-api-key")
	calls := grpcmw.Rule{Guard: limit.NewSlidingWindow(gate, "calls", limit.PerHour(2)), Who: who}
	slots := grpcmw.Rule{Guard: semaphore.New(gate, "slots", semaphore.Options{Max: 1}), Who: who}
	local, closed := serve(t, &service{}, calls), serve(t, &service{}, slots)
	server.Kill()
	wantCode(t, "a guard that fails closed", check(t, closed, "ann"), codes.Unavailable)
	for range 2 {
		wantCode(t, "a limit", check(t, local, "ann"), codes.OK)
	}
	wantCode(t, "a limit, used up in the process", check(t, local, "ann"), codes.ResourceExhausted)
}

// TestTheStatusOfARuleInFront: a client of gRPC makes a status of its own of an answer in HTTP, without a
// delay.
func TestTheStatusOfARuleInFront(t *testing.T) {
	calls := limit.NewSlidingWindow(newGate(t), "calls", limit.PerHour(1))
	rule := ratelimit.Rule{Guard: calls, Who: keyfuncs.IP()}
	inside := grpc.NewServer()
	healthpb.RegisterHealthServer(inside, &service{})
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: ratelimit.HTTP(rule)(inside), Protocols: &h2c, ReadHeaderTimeout: time.Minute,
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	client := dial(t, listener.Addr().String())
	wantCode(t, "an allowed call", check(t, client, "ann"), codes.OK)
	refused := check(t, client, "ann")
	wantCode(t, "a call that gets 429", refused, codes.Unavailable)
	if reason, delay := details(refused); reason != "" || delay != 0 {
		t.Errorf("the client gets %q and %v", reason, delay)
	}
}
