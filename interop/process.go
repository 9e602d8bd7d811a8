package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// answerTime is how long one request may take; a process that needs longer is killed.
const answerTime = 2 * time.Minute

// Driver asks the Java process on behalf of one test. Get one from [Start].
type Driver struct {
	t testing.TB
	p *process
}

// Start returns a driver for t, and starts the Java process if this test binary
// has none yet, or one that has died. Where there is nothing to run it with, t is
// skipped with the reason of [Available]. A driver that cannot be built or started
// although everything is there fails t.
func Start(t testing.TB) *Driver {
	t.Helper()
	if reason, ok := Available(); !ok {
		t.Skip(reason)
	}
	p, err := sharedProcess()
	if err != nil {
		t.Fatal(err)
	}
	return &Driver{t: t, p: p}
}

var shared struct {
	sync.Mutex
	p *process
}

func sharedProcess() (*process, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.p != nil && shared.p.alive() {
		return shared.p, nil
	}
	dir, err := build()
	if err != nil {
		return nil, err
	}
	p, err := launch(dir)
	if err != nil {
		return nil, err
	}
	shared.p = p
	return p, nil
}

// process is the Java child. It has no goroutine of its own on this side: a
// package that looks for leaked goroutines finds none.
type process struct {
	mu     sync.Mutex
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *os.File // nil where the child writes to our own
	dead   error    // why it answers no longer

	// scratch holds copies of directories. The child removes it when its input ends; killed, it cannot.
	scratch string
}

func launch(dir string) (*process, error) {
	level := os.Getenv(logVar)
	args := []string{
		"-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=" + orElse(level, "off"),
		fmt.Sprintf("-Doncelog.traces=%t", level != ""),
		"-cp", filepath.Join(dir, "driver.jar") + string(os.PathListSeparator) + filepath.Join(dir, "lib", "*"),
		"oncelog.interop.Driver",
	}
	p := &process{cmd: exec.Command("java", args...)}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(stdout, 1<<20)
	p.cmd.Stderr = os.Stderr
	if level == "" {
		// A file, not a buffer: a buffer would need a goroutine that fills it.
		if p.stderr, err = os.CreateTemp("", "oncelog-interop-*.stderr"); err != nil {
			return nil, err
		}
		defer os.Remove(p.stderr.Name())
		p.cmd.Stderr = p.stderr
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("interop: %s: %w", p.cmd, err)
	}
	var pong struct {
		Scratch string `json:"scratch"`
	}
	if err := p.call("ping", 0, nil, &pong); err != nil {
		return nil, err
	}
	p.scratch = pong.Scratch
	return p, nil
}

func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead == nil
}

// call sends one request and decodes its answer into out. A request is the fields
// of in (a struct or nil) beside its name and, unless 0, its session.
func (p *process) call(op string, session int, in, out any) error {
	line, err := encode(op, session, in)
	if err != nil {
		return err
	}
	answer, err := p.exchange(line)
	if err != nil {
		return fmt.Errorf("interop: %s: %w", op, err)
	}
	var head struct {
		OK      bool
		Failure *failure
	}
	if err := json.Unmarshal(answer, &head); err != nil {
		return fmt.Errorf("interop: %s: answer %.200q: %w", op, answer, err)
	}
	if !head.OK {
		return head.Failure.error(op)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("interop: %s: answer %.200q: %w", op, answer, err)
	}
	return nil
}

func encode(op string, session int, in any) ([]byte, error) {
	head, err := json.Marshal(struct {
		Op      string `json:"op"`
		Session int    `json:"session,omitempty"`
	}{op, session})
	if err != nil {
		return nil, err
	}
	body := []byte("{}")
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return nil, fmt.Errorf("interop: %s: %w", op, err)
		}
	}
	if !bytes.Equal(body, []byte("{}")) {
		head = append(head[:len(head)-1], ',')
		head = append(head, body[1:]...)
	}
	return append(head, '\n'), nil
}

// exchange writes one line and reads one. Whatever goes wrong here ends the
// process: the next answer could belong to this request.
func (p *process) exchange(line []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead != nil {
		return nil, p.dead
	}
	late := time.AfterFunc(answerTime, func() { p.cmd.Process.Kill() })
	_, err := p.in.Write(line)
	var answer []byte
	if err == nil {
		answer, err = p.out.ReadBytes('\n')
	}
	if late.Stop() && err == nil {
		return answer, nil
	}
	p.in.Close()
	p.cmd.Process.Kill()
	state := p.cmd.Wait()
	if p.scratch != "" {
		os.RemoveAll(p.scratch)
	}
	p.dead = fmt.Errorf("the Java process answers no longer (%v, %v)%s", orElse(err, errLate), state, p.said())
	return nil, p.dead
}

var errLate = errors.New("no answer in time")

// said is the end of what the child wrote to its standard error.
func (p *process) said() string {
	if p.stderr == nil {
		return ""
	}
	size, err := p.stderr.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return ""
	}
	tail := make([]byte, min(size, 8<<10))
	if _, err := p.stderr.ReadAt(tail, size-int64(len(tail))); err != nil {
		return ""
	}
	return "\n" + strings.TrimSpace(string(tail))
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
