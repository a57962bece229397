package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/operator"
)

// firstSocket is the first file descriptor that systemd passes (sd_listen_fds).
const firstSocket = 3

// listener listens where the proxy asks.
func (s *server) listener(ctx context.Context) (net.Listener, error) {
	if os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) && os.Getenv("LISTEN_FDS") != "" {
		if n := os.Getenv("LISTEN_FDS"); n != "1" {
			return nil, fmt.Errorf("systemd passes %s sockets: want one ListenStream", n)
		}
		f := os.NewFile(firstSocket, "systemd")
		defer func() { _ = f.Close() }() // the listener has a copy
		return net.FileListener(f)
	}
	path, unix := strings.CutPrefix(s.listen, "unix:")
	if !unix {
		return new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	}
	return listenUnix(path, s.mode)
}

// listenUnix listens at a path. It takes the place of a socket that is there: at each moment the path leads
// to a process that answers. It is the last step of a start: the former process is not asked any longer.
func listenUnix(path string, mode os.FileMode) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is there and no socket: name another path with -listen", path)
	}
	made := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(made); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by then it may be that of the next process
	var own os.FileInfo
	if err = os.Chmod(made, mode); err == nil {
		own, err = os.Lstat(made)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		_, _ = os.Remove(made), l.Close()
		return nil, err
	}
	return named{l, path, own}, nil
}

// named is a listener with the path that it has now.
type named struct {
	net.Listener
	path string
	own  os.FileInfo // of the socket
}

func (n named) Addr() net.Addr { return &net.UnixAddr{Name: n.path, Net: "unix"} }

// forsaken reports whether the path leads to nobody any longer: it was removed, or the process that has taken
// it over has ended.
func (n named) forsaken(ctx context.Context) bool {
	info, err := os.Lstat(n.path)
	switch {
	case err != nil:
		return errors.Is(err, os.ErrNotExist)
	case os.SameFile(info, n.own), info.Mode()&os.ModeSocket == 0:
		return false
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", n.path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// takeBack listens at the path of a socket anew if it leads to nobody. It returns the listener that is asked.
// The former listener stays for a while, for what it has queued. If a next process takes the path over
// between the look and the rename, it loses it again until this process ends: then it takes it back itself.
func (s *server) takeBack(
	ctx context.Context, web *http.Server, l net.Listener, look *time.Ticker,
) net.Listener {
	socket, ok := l.(named)
	if !ok || !socket.forsaken(ctx) {
		return l
	}
	anew, err := listenUnix(socket.path, s.mode)
	if err != nil {
		s.log.Error("nobody answers at the socket, and it cannot be taken back", "err", err)
		look.Reset(time.Minute)
		return l
	}
	s.log.Warn("nobody answered at the socket: this process has taken it back", "listen", socket.path)
	look.Reset(lookEvery)
	s.serveAt(web, anew)
	time.AfterFunc(parting, func() { _ = l.Close() }) // its path is not its own any longer
	return anew
}

// notify tells systemd, if that wants to know (sd_notify).
func (s *server) notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if strings.HasPrefix(path, "@") {
		path = "\x00" + path[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close()
	}
	if err != nil {
		s.log.Warn("systemd does not hear of the state", "state", state, "err", err)
	}
}

// pages are the operator's pages and the metrics. Nobody logs in, so they are for this machine only.
type pages struct {
	*http.Server
	served bool
}

func (s *server) newPages(live *config.Live) (*pages, error) {
	host, _, err := net.SplitHostPort(s.operator)
	if s.operator != "" && (err != nil || !isLoopback(host)) {
		return nil, cli.Usagef("-operator is %q: name a loopback address with a port, such as 127.0.0.1:9100, "+
			"since nobody logs in there", s.operator)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", s.metrics.write)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		operator.New(operator.Options{Lists: listsOf(live.Set()), Figures: s.figures,
			Authorize: func(r *keyfuncs.Request, _ operator.Action) (string, error) {
				return "somebody at " + r.RemoteAddr, nil
			}}).ServeHTTP(w, r)
	})
	return &pages{Server: s.newHTTP(onlyHere(mux))}, nil
}

// listsOf returns the lists of rules that are in force.
func listsOf(set *config.Set) (all []operator.List) {
	for _, name := range set.Config().Lists() {
		all = append(all, operator.List{Name: name, Rules: set.Rules(name)})
	}
	return all
}

// servePages serves the pages, unless they are served or no flag names their address. [syscall.EADDRINUSE]
// means that another process has the address, as the former one has at a deployment.
func (s *server) servePages(ctx context.Context, p *pages) error {
	if p.served || s.operator == "" {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.operator)
	if err != nil {
		return err
	}
	p.served = true
	s.log.Info("the operator's pages", "url", "http://"+l.Addr().String()+"/")
	s.serveAt(p.Server, l)
	return nil
}

// onlyHere refuses requests by another name: a page of somebody else's, whose name leads to this machine.
func onlyHere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !isLoopback(host) {
			http.Error(w, "Ask by a loopback address.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && addr.IsLoopback()
}
