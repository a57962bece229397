package timed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// processes reads /proc about the test's process and all that descend from it.
type processes struct {
	at    time.Time
	below []process
	found time.Time
	waits map[string]time.Duration // by thread: how long it has waited for a processor since it began
}

type process struct {
	pid  int
	name string
}

// look returns how long the test's own process waited for a processor since the last look, and how long the
// process did below it that waited longest or was stopped, and the name of that.
func (p *processes) look() (own, other time.Duration, whose string) {
	now := time.Now()
	since := now.Sub(p.at)
	first := p.at.IsZero()
	p.at = now
	if now.Sub(p.found) > 200*time.Millisecond {
		p.below, p.found = descendants(os.Getpid()), now
	}
	if p.waits == nil {
		p.waits = map[string]time.Duration{}
	}
	own = p.waited(os.Getpid())
	for _, of := range p.below {
		long := p.waited(of.pid)
		if stoodStill(of.pid) {
			long = max(long, since)
		}
		if long > other {
			other, whose = long, fmt.Sprintf("%s (%d)", of.name, of.pid)
		}
	}
	if first {
		return 0, 0, ""
	}
	return own, other, whose
}

// waited returns how long the thread of the process that waited longest did so since the last look.
func (p *processes) waited(pid int) time.Duration {
	var longest time.Duration
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is valid
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text))
		if len(fields) < 2 {
			continue
		}
		ns, _ := strconv.ParseInt(fields[1], 10, 64) // 0 of what cannot be read is no wait
		before, known := p.waits[path]
		p.waits[path] = time.Duration(ns)
		if known {
			longest = max(longest, time.Duration(ns)-before)
		}
	}
	return longest
}

// stat returns the state and the parent of a process.
func stat(pid int) (name string, state byte, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, 0
	}
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return "", 0, 0
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 2 {
		return "", 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return string(text[open+1 : end]), fields[0][0], parent
}

// stoodStill reports whether a stranger has stopped the process: see [Signal].
func stoodStill(pid int) bool {
	_, ours := stopped.Load(pid)
	_, state, _ := stat(pid)
	return !ours && state == 'T'
}

// descendants returns the processes below pid.
func descendants(pid int) []process {
	type entry struct {
		name   string
		parent int
	}
	all := map[int]entry{}
	paths, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, path := range paths {
		id, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		name, state, parent := stat(id)
		if state == 0 || state == 'Z' {
			continue
		}
		all[id] = entry{name, parent}
	}
	var below []process
	for id, e := range all {
		for up := e.parent; up > 1; up = all[up].parent {
			if up == pid {
				below = append(below, process{id, e.name})
				break
			}
		}
	}
	return below
}
