package vfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// lockEnv makes the test binary take a lock, say so, and wait until its standard input ends.
const lockEnv = "ONCELOG_TEST_LOCK"

func TestMain(m *testing.M) {
	if name := os.Getenv(lockEnv); name != "" {
		os.Exit(holdLock(name))
	}
	os.Exit(m.Run())
}

func holdLock(name string) int {
	_, err := OS.Lock(name, 0, 2, true)
	switch {
	case errors.Is(err, ErrLocked):
		fmt.Println("refused")
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println("held")
	}
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// otherProcess starts a process that tries to lock name, and returns what it says. It ends with the test.
func otherProcess(t *testing.T, name string) (said string, p *exec.Cmd) {
	t.Helper()
	p = exec.Command(os.Args[0])
	p.Env = append(os.Environ(), lockEnv+"="+name)
	in, err := p.StdinPipe()
	must(t, err)
	out, err := p.StdoutPipe()
	must(t, err)
	must(t, p.Start())
	t.Cleanup(func() {
		in.Close()
		p.Wait()
	})
	line := make(chan string, 1)
	go func() {
		s, _ := bufio.NewReader(out).ReadString('\n')
		line <- s
	}()
	select {
	case said = <-line:
	case <-time.After(time.Minute):
		t.Fatal("the other process says nothing")
	}
	return said, p
}

func TestLock_otherProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	l, err := OS.Lock(name, 0, 1, true)
	must(t, err)
	if said, _ := otherProcess(t, name); said != "refused\n" {
		t.Errorf("while this process holds the lock another says %q", said)
	}
	beside, err := OS.Lock(name, 1, 1, false)
	must(t, err)
	must(t, l.Close())
	if said, _ := otherProcess(t, name); said != "refused\n" {
		t.Errorf("while this process holds a part another says %q", said)
	}
	must(t, beside.Close())

	said, p := otherProcess(t, name)
	if said != "held\n" {
		t.Fatalf("after the release another process says %q", said)
	}
	if _, err := OS.Lock(name, 0, 1, false); !errors.Is(err, ErrLocked) {
		t.Errorf("while another process holds the lock: %v", err)
	}
	after, err := OS.Lock(name, 2, 1, true)
	must(t, err)
	must(t, after.Close())

	must(t, p.Process.Kill())
	p.Wait()
	l, err = OS.Lock(name, 0, 2, true)
	must(t, err)
	must(t, l.Close())
}

// TestLock_removedFile has holders remove the lock file before they release it, as Kafka does. Who opened the file
// before the removal and locks it afterwards must notice: another may hold the lock on the next file of that name.
func TestLock_removedFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows does not remove an open file")
	}
	name := filepath.Join(t.TempDir(), "lock")
	var holders, held atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				l, err := OS.Lock(name, 0, 1, true)
				if errors.Is(err, ErrLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if holders.Add(1) != 1 {
					t.Error("two hold the lock")
				}
				held.Add(1)
				runtime.Gosched()
				holders.Add(-1) // once the name is gone, the lock excludes nobody
				if err := OS.Remove(name); err != nil {
					t.Error(err)
				}
				l.Close()
			}
		})
	}
	wg.Wait()
	t.Logf("held %d times", held.Load())
}

func TestLock_readOnlyFile(t *testing.T) {
	if os.Getuid() <= 0 {
		t.Skip("needs a user whom permissions stop")
	}
	name := filepath.Join(t.TempDir(), "lock")
	must(t, os.WriteFile(name, nil, 0o400))
	if _, err := OS.Lock(name, 0, 1, true); !errors.Is(err, os.ErrPermission) {
		t.Errorf("exclusive: %v", err)
	}
	l, err := OS.Lock(name, 0, 1, false)
	must(t, err)
	must(t, l.Close())
}
