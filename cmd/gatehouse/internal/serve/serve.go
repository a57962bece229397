// Package serve has the command serve: the rules of a file, for a proxy that asks before it passes a request
// on.
package serve

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/connect"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/rules"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/embedded"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
	"github.com/gatehouse-go/gatehouse/ops/operator"
)

// Command is the command serve.
var Command = cli.Command{Name: "serve", Args: "-rules FILE -from PROXY [flags]",
	Does: "the rules of a file for everything behind a proxy", Run: serve}

// grace is how long requests may take that are under way at the end.
const grace = 10 * time.Second

// parting is how long connections are kept at the end, for the proxy to hear that they close. A question on
// one that closes unheard is lost, if the proxy does not ask again.
const parting = 500 * time.Millisecond

// lookEvery is how often a process looks whether another one has left the socket or the operator's address.
const lookEvery = 250 * time.Millisecond

// server is the command at work.
type server struct {
	connect.Redis
	file, listen, operator string
	mode                   os.FileMode
	embedded, dry          bool
	options                gateway.Options

	log     *slog.Logger
	figures *operator.Figures
	metrics *metrics
	ended   chan error // a listener has failed
}

func serve(ctx context.Context, e *cli.Env) error {
	s := &server{mode: 0o660, figures: new(operator.Figures), metrics: newMetrics(),
		ended: make(chan error, 2)}
	s.register(e.Flags)
	operands, err := e.Operands()
	switch {
	case err != nil:
		return err
	case len(operands) > 0:
		return cli.Usagef("%q is no flag: the file is named with -rules", operands[0])
	case s.file == "":
		return cli.Usagef("-rules is missing: name the file of rules")
	case s.options.From == 0:
		return cli.Usagef("-from is missing: name the proxy, such as nginx")
	case s.listen == "unix:":
		return cli.Usagef("-listen names no path: write it as unix:/run/gatehouse.sock")
	}
	if s.dry {
		return s.check(e)
	}
	s.log = slog.New(slog.NewTextHandler(e.Errs, nil))
	if e.JSON {
		s.log = slog.New(slog.NewJSONHandler(e.Errs, nil))
	}
	rdb, address, err := s.client(e)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }() // nobody uses it any longer
	var gate *core.Engine
	if err := cli.Caught(func() {
		gate = core.New(rdb, core.WithPrefix(s.Prefix), core.WithLogger(s.log),
			core.WithObserver(core.Observers(s.figures, s.metrics)))
	}); err != nil {
		return err
	}
	live, err := config.Watch(ctx, gate, s.file, s.forGateway())
	if err != nil {
		if mistakes := (*config.Error)(nil); errors.As(err, &mistakes) {
			err = rules.First(mistakes, "gatehouse serve -check")
		}
		return err
	}
	if err := gate.Preload(ctx); err != nil {
		s.log.Warn("Redis cannot be used yet: until then the policies of the rules hold", "err", err)
	}
	return s.run(ctx, live, address)
}

func (s *server) register(fs *flag.FlagSet) {
	s.Register(fs)
	s.options.Users = map[string]string{}
	fs.StringVar(&s.file, "rules", "", "the `file` of rules, with routes; it is followed, and read at SIGHUP")
	fs.Func("from", "the `proxy`: nginx, traefik, caddy, haproxy or envoy", func(name string) (err error) {
		s.options.From, err = gateway.ParseFrom(name)
		return err
	})
	fs.StringVar(&s.listen, "listen", "unix:/run/gatehouse.sock",
		"where the proxy asks: unix:`PATH`, or HOST:PORT; a socket of systemd takes its place")
	fs.Func("socket-mode", "who may ask at a Unix socket, by its `mode` (default 0660)", func(text string) error {
		mode, err := strconv.ParseUint(text, 8, 9)
		s.mode = os.FileMode(mode)
		return err
	})
	fs.Func("proxies", "a `prefix` from which the proxy may ask on TCP (default loopback); may be repeated",
		func(text string) error {
			prefix, err := netip.ParsePrefix(text)
			if addr, other := netip.ParseAddr(text); other == nil {
				prefix, err = addr.Prefix(addr.BitLen())
			}
			s.options.Proxies = append(s.options.Proxies, prefix)
			return err
		})
	fs.Func("user", "the field in which the proxy sends what its login knows, such as `uid=X-User`; may be repeated",
		func(text string) error {
			name, field, ok := strings.Cut(text, "=")
			if !ok || name == "" || field == "" {
				return errors.New("write it as NAME=FIELD")
			}
			s.options.Users[name] = field
			return nil
		})
	fs.BoolVar(&s.options.EncodedSlashes, "encoded-slashes", false, "let paths with %2F pass")
	fs.BoolVar(&s.options.PathParameters, "path-parameters", false, "let paths with a semicolon pass")
	fs.BoolVar(&s.options.FoldPath, "fold-path", false, "the application routes without regard to case")
	fs.BoolVar(&s.embedded, "embedded", false, "a Redis inside the process: its counts end with it")
	fs.StringVar(&s.operator, "operator", "",
		"a loopback `address` for /metrics and the operator's pages, such as 127.0.0.1:9100")
	fs.BoolVar(&s.dry, "check", false, "only check the file")
}

// forGateway is how the file is read.
func (s *server) forGateway() config.Option {
	users := make([]string, 0, len(s.options.Users))
	for name := range s.options.Users {
		users = append(users, name)
	}
	return config.ForGateway(users...)
}

// check says whether the file can be served.
func (s *server) check(e *cli.Env) error {
	found, err := rules.Check(s.file, []config.Option{s.forGateway()})
	if err != nil {
		return err
	}
	routes := []config.Route{}
	if found.Config != nil {
		routes = append(routes, found.Config.Routes()...)
	}
	result := map[string]any{"file": s.file, "routes": routes, "mistakes": found.Mistakes}
	err = e.Write(result, func(w *strings.Builder) {
		found.Write(w, func() string { return cli.Count(len(routes), "route") + " for " + s.options.From.String() })
	})
	if err == nil && len(found.Mistakes) > 0 {
		err = cli.ErrProblem
	}
	return err
}

// client makes the client of the Redis that the flags name. It sends nothing: the command starts while Redis
// is away.
func (s *server) client(e *cli.Env) (rdb redis.UniversalClient, address string, err error) {
	if !s.embedded {
		return s.Client(e)
	}
	client, inside, err := embedded.Connect("")
	if err != nil {
		return nil, "", err
	}
	s.log.Warn("a Redis runs inside this process: no other process shares its counts, and they end with it")
	return client, inside.Addr(), nil
}

// run serves until the context ends, and then lets the requests under way end.
func (s *server) run(ctx context.Context, live *config.Live, redisAt string) error {
	var h http.Handler
	if err := cli.Caught(func() { h = gateway.Handler(live, s.options) }); err != nil {
		return err
	}
	var parts atomic.Bool
	web := s.newHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parts.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	}))
	pages, err := s.newPages(live)
	if err != nil {
		return err
	}
	if err := s.servePages(ctx, pages); errors.Is(err, syscall.EADDRINUSE) {
		s.log.Warn("another process has the operator's address: this one takes it when it is free",
			"operator", s.operator)
	} else if err != nil {
		return err
	}
	l, err := s.listener(ctx) // all else that can fail comes before
	if err != nil {
		return err
	}
	s.serveAt(web, l)
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, syscall.SIGHUP)
	defer signal.Stop(hangUp)
	s.log.Info("the gateway is ready", "from", s.options.From.String(), "listen", l.Addr().String(),
		"redis", redisAt, "rules", s.file)
	s.notify("READY=1")
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-hangUp:
			_ = live.Reload() // the logger has its error
		case err = <-s.ended:
		case <-look.C:
			_ = s.servePages(ctx, pages) // the start has told of the error
			l = s.takeBack(ctx, web, l, look)
		}
	}
	s.notify("STOPPING=1")
	if parts.Store(true); err == nil {
		<-time.After(parting)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(err, web.Shutdown(end), pages.Shutdown(end), core.Drain(end))
}

func (s *server) newHTTP(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)}
}

// serveAt serves a listener until that is closed. Another error that ends it is sent.
func (s *server) serveAt(server *http.Server, l net.Listener) {
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.ended <- err
		}
	}()
}
