package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	startTimeout = 5 * time.Minute  // generous: the machine may be busy
	stopTimeout  = 20 * time.Second // more than the 10 s a primary waits for its replicas
)

// process is one redis-server: the running one, and what it takes to start it again in the same place.
type process struct {
	port  int
	dir   string
	args  []string
	admin *redis.Client // for the harness itself

	mu     sync.Mutex // held while starting and stopping
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// launch starts a redis-server in its own folder below parent, on another port if another process took the
// first one meanwhile.
func launch(parent string, config ...string) (*process, error) {
	var failures []error
	for range 5 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		p := newProcess(parent, port, config)
		if err = p.start(); err == nil {
			return p, nil
		}
		failures = append(failures, err)
		p.close()
	}
	return nil, errors.Join(failures...)
}

func newProcess(parent string, port int, config []string) *process {
	dir := filepath.Join(parent, strconv.Itoa(port))
	args := []string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no",
		"--save", "", "--appendonly", "no",
		// A cluster names a replica only after its primary's first ping, by default 10 s late.
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
	}
	opt := options(address(port)).Simple()
	opt.DialTimeout, opt.ReadTimeout, opt.DialerRetries, opt.PoolSize = time.Second, 2*time.Second, 1, 2
	return &process{port: port, dir: dir, args: append(args, config...), admin: redis.NewClient(opt)}
}

// start runs the server and waits until it answers and has loaded its data.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("redistest: the server on port %d is already running", p.port)
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // redis-server has its own handle

	cmd := exec.Command(Program(), p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := Spawn(cmd); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited

	poll(startTimeout, func() bool { return !p.running() || p.ready() })
	if p.running() && p.ready() {
		return nil
	}
	p.killLocked()
	return fmt.Errorf("redistest: %s on port %d did not start; end of its log:\n%s", Program(), p.port,
		p.logTail())
}

// ready reports whether this process (and not a stranger that took the port first) answers on the port,
// with its data loaded.
func (p *process) ready() bool {
	conn, err := net.Dial("tcp", address(p.port))
	if err != nil {
		return false // without the line that go-redis would log
	}
	_ = conn.Close()
	ctx, cancel := shortContext()
	defer cancel()
	info, err := p.admin.Info(ctx, "server").Result()
	if err != nil {
		return isRedisError(err) && !isLoading(err) // such as NOAUTH
	}
	if !hasLines(info, fmt.Sprintf("process_id:%d", p.cmd.Process.Pid)) {
		return false
	}
	err = p.admin.Ping(ctx).Err()
	return err == nil || isRedisError(err) && !isLoading(err)
}

func isRedisError(err error) bool { var e redis.Error; return errors.As(err, &e) }
func isLoading(err error) bool    { return strings.HasPrefix(err.Error(), "LOADING") }

// running reports whether the process was started and has not ended.
func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process at once, paused or not, and returns when it is gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killLocked()
}

func (p *process) killLocked() {
	if p.running() {
		_ = p.cmd.Process.Kill() // an error means that it has ended
		<-p.exited
	}
}

// stop asks the process to end and returns when it is gone.
func (p *process) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil
	}
	if err := errors.Join(resume(p.cmd.Process), terminate(p.cmd.Process)); err != nil && p.running() {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTimeout):
		p.killLocked()
		return fmt.Errorf("redistest: the server on port %d ignored SIGTERM for %v", p.port, stopTimeout)
	}
}

// close ends the process for good.
func (p *process) close() {
	p.kill()
	_ = p.admin.Close()
}

func (p *process) logFile() string { return filepath.Join(p.dir, "redis.log") }

func (p *process) logTail() string {
	text, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// replication reports whether INFO replication has all of the lines.
func (p *process) replication(lines ...string) bool {
	ctx, cancel := shortContext()
	defer cancel()
	text, err := p.admin.Info(ctx, "replication").Result()
	return err == nil && hasLines(text, lines...)
}

func hasLines(text string, lines ...string) bool {
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\r\n") {
			return false
		}
	}
	return true
}

func shortContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 5*time.Second)
}
