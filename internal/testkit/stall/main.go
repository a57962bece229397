//go:build unix

// Command stall runs a command and, meanwhile, stops processes of its tree for a while, as a busy machine
// does.
//
//	go run ./internal/testkit/stall [-every 3s] [-most 2s] [-spin 0] [-seed N] COMMAND ARGUMENT...
//
// About once in -every it picks one process below the command (a test binary, a redis-server that it has
// started, a proxy: all but compilers, linkers, go and make, and what a test has stopped by itself), sends
// it SIGSTOP, and after 50 ms to -most SIGCONT. What it stopped, and for how long, stands on the standard
// error, with the time.
//
// With -spin N it also keeps N threads busy, for half of the time, in turns of up to -most: processes then
// starve.
//
// It ends with the command's exit status. A test that fails under it reads real time: it asserts how fast the
// machine is, not what the product does. The seed is printed, and repeats the choices, not what they hit.
package main

import (
	"context"
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
	if flag.NArg() == 0 || *every <= 0 || *most <= 0 {
		fmt.Fprintln(os.Stderr, "stall: name a command, and spans of time above 0")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "stall: seed", *seed)
	runtime.GOMAXPROCS(*spin + runtime.NumCPU())
	for range *spin {
		go busy(*most)
	}
	cmd := exec.CommandContext(context.Background(), flag.Arg(0), flag.Args()[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "stall:", err)
		os.Exit(2)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	os.Exit(stallUntil(done, rand.New(rand.NewSource(*seed)), *every, *most))
}

// stallUntil stops processes until the command is done, and returns its exit status.
func stallUntil(done <-chan error, random *rand.Rand, every, most time.Duration) int {
	for {
		select {
		case err := <-done:
			if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() > 0 {
				return exit.ExitCode()
			}
			if err != nil {
				return 1
			}
			return 0
		case <-time.After(every/2 + time.Duration(random.Int63n(int64(every)))):
		}
		tree := below(os.Getpid())
		if len(tree) == 0 {
			continue
		}
		p := tree[random.Intn(len(tree))]
		long := 50*time.Millisecond + time.Duration(random.Int63n(int64(most)))
		if syscall.Kill(p.pid, syscall.SIGSTOP) != nil {
			continue // it has ended
		}
		<-time.After(long)
		_ = syscall.Kill(p.pid, syscall.SIGCONT) // a test may have killed it
		fmt.Fprintf(os.Stderr, "stall: %s %s (%d) stood still for %v\n", time.Now().Format("15:04:05.000"), p.name,
			p.pid, long.Round(time.Millisecond))
	}
}

// busy keeps a thread busy, and rests as long, in turns.
func busy(most time.Duration) {
	runtime.LockOSThread()
	for {
		turn := time.Duration(rand.Int63n(int64(most)))
		for end := time.Now().Add(turn); time.Now().Before(end); {
		}
		<-time.After(turn)
	}
}

type process struct {
	pid    int
	name   string
	state  string
	parent int
}

// below returns the processes that descend from pid and may be stopped, as /proc has them.
func below(pid int) []process {
	all := map[int]process{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		s := string(text)
		open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
		if open < 0 || end < open {
			continue
		}
		id, idErr := strconv.Atoi(strings.TrimSpace(s[:open]))
		fields := strings.Fields(s[end+1:])
		if idErr != nil || len(fields) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1]) // what is no number has no parent here
		all[id] = process{id, s[open+1 : end], fields[0], parent}
	}
	var found []process
	for _, p := range all {
		for up := p.parent; up > 1; up = all[up].parent {
			if up == pid {
				if stoppable(p) {
					found = append(found, p)
				}
				break
			}
		}
	}
	return found
}

// stoppable reports whether the stop of this process tests the tests. What stands still already a test has
// stopped: it would go on too early.
func stoppable(p process) bool {
	switch p.name {
	case "go", "make", "compile", "link", "asm", "cgo", "vet", "sh", "bash", "cat", "buildid", "stall", "git",
		"gcc":
		return false
	}
	return p.state != "T" && p.state != "Z"
}
