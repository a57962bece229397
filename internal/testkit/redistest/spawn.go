package redistest

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawn starts the command on a thread that lives as long as the test binary:
// the parent-death signal of the child is sent when that thread ends.
func spawn(cmd *exec.Cmd) error {
	result := make(chan error)
	spawner() <- func() { result <- cmd.Start() }
	return <-result
}

var spawner = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})
