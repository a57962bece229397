package redistest

import (
	"os/exec"
	"runtime"
	"sync"
)

// Spawn starts a command that dies with the test binary, on systems that can do that. It does so on a thread
// that lives as long as the test binary: the parent-death signal of the child is sent when that thread ends.
func Spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = sysProcAttr()
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
