package grpcmw_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	grpcmw "github.com/gatehouse-go/gatehouse/examples/grpc"
)

// One call of each method per hour and key, and five at a time.
func Example() {
	gate := core.NewMemory() // in production: core.New(rdb)

	key := grpcmw.Metadata("x-api-key") // which an interceptor in front has checked
	slots := grpcmw.Rule{Guard: semaphore.New(gate, "slots", semaphore.Options{Max: 5}), Who: key}
	calls := grpcmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "calls", limit.PerHour(1)),
		Who:   key,
		What:  grpcmw.Method,
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcmw.Unary(slots), grpcmw.Unary(calls)),
		grpc.ChainStreamInterceptor(grpcmw.Stream(slots), grpcmw.Stream(calls)),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-api-key", "ann")
	for range 2 {
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	for _, detail := range status.Convert(err).Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			fmt.Println("again in", retry.RetryDelay.AsDuration().Round(time.Minute))
		}
	}
	// Output:
	// OK
	// ResourceExhausted
	// again in 1h0m0s
}
