package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// shared holds what the tests of the package share until Main stops it.
var shared struct {
	underMain atomic.Bool
	warmOnce  sync.Once
	warming   sync.WaitGroup

	mu      sync.Mutex
	servers []*sharedServers
}

// sharedServers is one redis-server or one cluster, with the client that the
// tests share.
type sharedServers struct {
	dir    string
	procs  []*process
	addrs  []string
	client redis.UniversalClient
}

var (
	sharedSingle = sync.OnceValues(func() (*sharedServers, error) {
		return startShared(func(dir string) ([]*process, error) {
			p, err := launch(dir)
			if err != nil {
				return nil, err
			}
			return []*process{p}, nil
		}, false)
	})
	sharedCluster = sync.OnceValues(func() (*sharedServers, error) {
		return startShared(func(dir string) ([]*process, error) {
			procs, err := launchCluster(dir)
			return procs, errors.Join(err, bePatient(procs))
		}, true)
	})
)

// warmCluster begins to start the shared cluster, which takes two seconds, while the test runs on the
// backends before it. The test that asks for the cluster gets the error.
func warmCluster() {
	if _, err := exec.LookPath(Program()); err != nil || !shared.underMain.Load() {
		return
	}
	shared.warmOnce.Do(func() {
		shared.warming.Go(func() { _, _ = sharedCluster() })
	})
}

// bePatient keeps a cluster that no test breaks from failing over because the machine is busy. (From the
// start, it would make forming the cluster slow.)
func bePatient(procs []*process) error {
	ctx, cancel := shortContext()
	defer cancel()
	var errs []error
	for _, p := range procs {
		errs = append(errs, p.admin.ConfigSet(ctx, "cluster-node-timeout", "30000").Err())
	}
	return errors.Join(errs...)
}

func startShared(launch func(dir string) ([]*process, error), cluster bool) (*sharedServers, error) {
	if !shared.underMain.Load() {
		return nil, errors.New("redistest: the shared servers would not be stopped: " +
			"add to the tests: func TestMain(m *testing.M) { redistest.Main(m) }")
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	procs, err := launch(dir)
	if err != nil {
		for _, p := range procs {
			p.close()
		}
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &sharedServers{dir: dir, procs: procs}
	for _, p := range procs {
		s.addrs = append(s.addrs, address(p.port))
	}
	opt := patient(options(s.addrs...))
	opt.IsClusterMode = cluster
	s.client = redis.NewUniversalClient(opt)

	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.servers = append(shared.servers, s)
	return s, nil
}

func (s *sharedServers) stop() error {
	err := s.client.Close()
	for _, p := range s.procs {
		p.close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// prefixes remembers which test got which prefix. All prefixes have the same
// length, so none is the beginning of another.
var prefixes = prefixBook{tests: make(map[string]string)}

type prefixBook struct {
	mu    sync.Mutex
	tests map[string]string
}

const prefixLength = len("t000001")

func (b *prefixBook) next(test string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	prefix := fmt.Sprintf("t%06d", len(b.tests)+1)
	b.tests[prefix] = test
	return prefix
}

// testOf returns the name of the test whose key it is.
func (b *prefixBook) testOf(key string) (test string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	test, ok = b.tests[key[:min(prefixLength, len(key))]]
	return test, ok
}
