package redistest

import (
	"os/exec"
	"syscall"
)

// DieWithParent has the kernel kill the command, not started yet, when the thread that starts it ends. Go's threads live
// as long as the process, except where a goroutine ends while locked to one.
func DieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
