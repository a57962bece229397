package connect

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	clitest.Main(m, cli.Command{Name: "connect", Run: func(ctx context.Context, e *cli.Env) error {
		var f Redis
		f.Register(e.Flags)
		if _, err := e.Operands(); err != nil {
			return err
		}
		_, rdb, err := f.Connect(ctx, e)
		if err == nil {
			_ = rdb.Close()
		}
		return err
	}})
}

func TestARedisThatCannotBeUsedIsNamedWithTheCause(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	locked := redistest.StartServer(t, "--requirepass", "another")
	closed := redistest.ClosedAddress(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, tt := range []struct{ name, url, want string }{
		{"closed port", "redis://:" + secret + "@" + closed, "cannot use the Redis at " + closed + ": "},
		{"closed port, why", "redis://" + closed, "connection refused"},
		{"wrong password", "redis://:" + secret + "@" + locked.Addr(), "WRONGPASS"},
		{"no password", "redis://" + locked.Addr(), "NOAUTH"},
		{"no answer", "redis://" + silent.Addr().String(), "no answer within 300ms"},
		{"no TLS there", "rediss://" + locked.Addr(), "cannot use the Redis at " + locked.Addr()},
		{"another scheme", "http://:" + secret + "@" + closed, "is not the URL of a Redis"},
		{"a port that is no number", "redis://:" + secret + "/@127.0.0.1:6379", "must be escaped"},
		{"an escape that is none", "redis://:" + secret + "%zz@127.0.0.1:6379", "%25"},
		{"a cluster that is none", "redis://" + closed + "?addr=" + closed, closed},
		{"sentinels that are none", "redis://" + closed + "?master_name=main", "main (sentinels " + closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			timeout := "1m" // where the cause may be that time is over, it comes soon
			if soon := tt.name == "no answer" || strings.Contains(tt.name, "none") || tt.name == "no TLS there"; soon {
				timeout = "300ms"
			}
			a := clitest.Run(t, []string{"REDIS_URL=" + tt.url}, "", "connect", "-timeout", timeout)
			a.Want(t, 2, "", tt.want)
			if strings.Contains(a.Errs, secret) {
				t.Errorf("%q tells the password", a.Errs)
			}
		})
	}
}
