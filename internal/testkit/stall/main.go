//go:build unix

// Command stall runs a command and, meanwhile, stops processes of its tree for a while, as a busy machine does.
//
//	go run ./internal/testkit/stall [-every 3s] [-most 2s] [-spin 0] [-seed N] COMMAND ARGUMENT...
//
// With -spin N it also keeps N threads busy, for half of the time, in turns of up to -most: processes then starve, which
// a goroutine that ticks may not see (/proc/pressure/cpu and /proc/PID/schedstat show it).
//
// About once in -every it picks one process of the tree (a test binary, a redis-server that it has started, a proxy:
// all but compilers, linkers, go and make), sends it SIGSTOP, and after 50 ms to -most SIGCONT. What it stopped, and
// for how long, stands on the standard error, with the time. It ends with the command's exit status. A test that fails
// under it reads real time: it asserts how fast the machine is, not what the product does.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	every := flag.Duration("every", 3*time.Second, "about how often a process is stopped")
	most := flag.Duration("most", 2*time.Second, "the longest stop")
	spin := flag.Int("spin", 0, "how many threads to keep busy meanwhile")
	seed := flag.Int64("seed", time.Now().UnixNano(), "of the choices")
	flag.Parse()
	runtime.GOMAXPROCS(*spin + runtime.NumCPU())
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "stall: name a command")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "stall: seed", *seed)
	random := rand.New(rand.NewSource(*seed))
	cmd := exec.Command(flag.Arg(0), flag.Args()[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "stall:", err)
		os.Exit(2)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for range *spin {
		go busy(*most)
	}
	for {
		select {
		case err := <-done:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				os.Exit(exit.ExitCode())
			}
			if err != nil {
				os.Exit(1)
			}
			return
		case <-time.After(*every/2 + time.Duration(random.Int63n(int64(*every)))):
		}
		tree := below(os.Getpid())
		if len(tree) == 0 {
			continue
		}
		p := tree[random.Intn(len(tree))]
		for0 := 50*time.Millisecond + time.Duration(random.Int63n(int64(*most)))
		if syscall.Kill(p.pid, syscall.SIGSTOP) != nil {
			continue
		}
		time.Sleep(for0)
		_ = syscall.Kill(p.pid, syscall.SIGCONT)
		fmt.Fprintf(os.Stderr, "stall: %s %s (%d) stood still for %v\n", time.Now().Format("15:04:05.000"), p.name, p.pid,
			for0.Round(time.Millisecond))
	}
}

// busy keeps a thread busy, and rests as long, in turns.
func busy(most time.Duration) {
	runtime.LockOSThread()
	for {
		turn := time.Duration(rand.Int63n(int64(most)))
		for end := time.Now().Add(turn); time.Now().Before(end); {
		}
		time.Sleep(turn)
	}
}

type process struct {
	pid  int
	name string
}

// below returns the processes that descend from pid and may be stopped.
func below(pid int) []process {
	type entry struct {
		parent int
		name   string
	}
	all := map[int]entry{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		s := string(text)
		open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
		if open < 0 || end < open {
			continue
		}
		id, _ := strconv.Atoi(strings.TrimSpace(s[:open]))
		fields := strings.Fields(s[end+1:])
		if len(fields) < 2 || fields[0] == "Z" || fields[0] == "T" { // a test has stopped it: it is not ours to resume
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		all[id] = entry{parent, s[open+1 : end]}
	}
	var found []process
	for id, e := range all {
		for up := e.parent; up > 1; up = all[up].parent {
			if up == pid {
				if stoppable(e.name) {
					found = append(found, process{id, e.name})
				}
				break
			}
		}
	}
	return found
}

// stoppable reports whether a process of this name is one whose stop tests the tests.
func stoppable(name string) bool {
	switch name {
	case "go", "make", "compile", "link", "asm", "cgo", "vet", "sh", "bash", "cat", "buildid", "stall", "git", "gcc":
		return false
	}
	return true
}
