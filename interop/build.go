package interop

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
)

// sources is the Java program; what is built is always what this package was compiled with.
//
//go:embed pom.xml src
var sources embed.FS

const (
	// enableVar switches the tests on.
	enableVar = "ONCELOG_INTEROP"

	// logVar names a level for Kafka's own log lines.
	logVar = "ONCELOG_INTEROP_LOG"

	// minJava is the oldest Java that Kafka 4.4's storage classes run on.
	minJava = 17
)

// Available tells whether [Start] would run a test here, and if not, why. It
// builds nothing. Finding out takes a moment once, as it asks Java its version.
func Available() (reason string, ok bool) {
	if os.Getenv(enableVar) != "1" {
		return "comparison with Kafka is off: set " + enableVar + "=1 (needs Java 17 and Maven; the first build fetches about 25 MB)", false
	}
	if reason = javaMissing(); reason != "" {
		return reason, false
	}
	dir, err := cacheDir()
	if err != nil {
		return "no cache directory for the driver: " + err.Error(), false
	}
	if built(dir) {
		return "", true
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return "comparison with Kafka needs Maven (mvn) to build its driver", false
	}
	return "", true
}

// javaVersion matches the first line of java -version: 1.8.0_292, 17.0.15, 21-ea.
var javaVersion = regexp.MustCompile(`version "(\d+)`)

// javaMissing says what is wrong with the Java on the path, or nothing.
var javaMissing = sync.OnceValue(func() string {
	path, err := exec.LookPath("java")
	if err != nil {
		return "comparison with Kafka needs Java 17 (java)"
	}
	out, err := exec.Command(path, "-version").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("java -version: %v: %s", err, out)
	}
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return fmt.Sprintf("java -version: no version in %q", out)
	}
	if v, err := strconv.Atoi(string(m[1])); err != nil || v < minJava {
		return fmt.Sprintf("comparison with Kafka needs Java %d, found %s", minJava, m[1])
	}
	return ""
})

// cacheDir is where the program built from the present sources lies, or will lie.
func cacheDir() (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	digest, err := sourceDigest()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "oncelog-interop", digest), nil
}

// sourceDigest names the sources: any change of them is another build.
func sourceDigest() (string, error) {
	h := sha256.New()
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := sources.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n", path, len(data))
		h.Write(data)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:16], err
}

// built tells whether a finished build lies at dir. A build appears there by one
// rename, so a directory that is there is whole.
func built(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "driver.jar"))
	return err == nil
}

// build returns the directory of the program, and builds it if no package or
// process has done so before. Several may try at once: a file lock lets one of
// them work and the others wait. Where there are no file locks all work, and the
// first rename wins.
func build() (string, error) {
	dir, err := cacheDir()
	if err != nil || built(dir) {
		return dir, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return "", err
	}
	unlock, err := lockFile(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if built(dir) {
		return dir, nil
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.CopyFS(filepath.Join(work, "source"), sources); err != nil {
		return "", err
	}
	out := filepath.Join(work, "out")
	cmd := exec.Command("mvn", "-q", "-B", "-Dstyle.color=never", "-Doutput="+out, "package")
	cmd.Dir = filepath.Join(work, "source")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("interop: %s: %w\n%s", cmd, err, bytes.TrimSpace(said))
	}
	if err := os.Rename(out, dir); err != nil && !built(dir) {
		return "", err
	}
	return dir, nil
}
