// Package postgres starts a private PostgreSQL for peers that need one.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrMissing says that this machine has no PostgreSQL that could be started.
var ErrMissing = errors.New("no PostgreSQL")

// Server is a private PostgreSQL on a free loopback port, with the data in a temporary directory. It dies with this process.
type Server struct {
	URL string

	cmd *exec.Cmd
	dir string
}

// Start starts a server with its defaults, and settings such as "fsync=off". It returns [ErrMissing] if there is none.
func Start(ctx context.Context, settings ...string) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redlatch-postgres-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	if err := s.start(ctx, bin, settings); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, bin string, settings []string) error {
	as, err := owner(s.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync", data)
	initdb.Dir, initdb.SysProcAttr = s.dir, as
	if said, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, said)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := free.Addr().(*net.TCPAddr)
	if err := free.Close(); err != nil {
		return err
	}
	s.URL = fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", addr)
	args := []string{"-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(addr.Port), "-k", ""}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(bin, "postgres"), args...)
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = s.dir, log, as
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	return s.awaitReady(ctx)
}

// programs returns the directory of initdb and postgres. Debian keeps them off the PATH.
func programs() (string, error) {
	found, err := exec.LookPath("initdb")
	if err != nil {
		all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is well formed
		if len(all) == 0 {
			return "", fmt.Errorf("%w: initdb is neither on the PATH nor in /usr/lib/postgresql", ErrMissing)
		}
		found = newest(all)
	}
	found, err = filepath.EvalSymlinks(found)
	return filepath.Dir(found), err
}

// newest returns the program of the highest version, which is a folder: 9.6 or 15.
func newest(all []string) string {
	version := func(path string) float64 {
		v, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(filepath.Dir(path))), 64) // what is no number is the oldest
		return v
	}
	return slices.MaxFunc(all, func(a, b string) int { return cmp.Compare(version(a), version(b)) })
}

// owner returns how to run a program as the owner of dir. PostgreSQL refuses to run as root, so root gives dir to the user postgres.
func owner(dir string) (*syscall.SysProcAttr, error) {
	as := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		return as, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("%w: it does not run as root, and %w", ErrMissing, err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return as, os.Chown(dir, int(uid), int(gid))
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(s.dir, "log")) // the error says the rest
			return fmt.Errorf("postgres at %s does not answer: %w: %s", s.URL, err, log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server and removes its directory.
func (s *Server) Stop() error {
	if s.cmd != nil {
		if err := s.cmd.Process.Signal(syscall.SIGQUIT); err != nil { // at once, its children too
			return err
		}
		_ = s.cmd.Wait() // it says that it was told to
	}
	return os.RemoveAll(s.dir)
}
