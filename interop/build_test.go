package interop_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// versions are those of Redisson that the tests run with: the newest 4.x and the newest 3.x. REDLATCH_REDISSON names
// others, with commas between them.
func versions() []string {
	if list := os.Getenv("REDLATCH_REDISSON"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{"4.7.0", "3.52.0"}
}

// requireJava skips the test where java or mvn is missing.
func requireJava(t *testing.T) {
	t.Helper()
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		if os.Getenv("REDLATCH_REQUIRE_JAVA") == "1" {
			t.Fatalf("%s must be on PATH: REDLATCH_REQUIRE_JAVA=1", program)
		}
		t.Skipf("skipped: %s is not on PATH", program)
	}
}

// builds are the folders with the Java program and what it needs, by version of Redisson.
var builds struct {
	mu   sync.Mutex // guards dirs; held while Maven runs
	dirs map[string]string
}

// built returns the class path of the Java program with this version of Redisson. Maven builds it once for each state of
// the sources, into the user's cache.
func built(t *testing.T, version string) string {
	t.Helper()
	builds.mu.Lock()
	defer builds.mu.Unlock()
	dir, ok := builds.dirs[version]
	if !ok {
		var err error
		if dir, err = build(version); err != nil {
			t.Fatalf("build with Redisson %s: %v", version, err)
		}
		if builds.dirs == nil {
			builds.dirs = map[string]string{}
		}
		builds.dirs[version] = dir
	}
	return filepath.Join(dir, "classes") + string(filepath.ListSeparator) + filepath.Join(dir, "lib", "*")
}

func build(version string) (string, error) {
	sum := sha256.New()
	for _, name := range []string{"java/pom.xml", "java/src/main/java/Grid.java", "java/src/main/java/Peer.java"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		sum.Write(text)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "redlatch", fmt.Sprintf("interop-%s-%s", version, hex.EncodeToString(sum.Sum(nil)[:6])))
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return dir, nil
	}
	// Without a network first: what Maven has downloaded once it has.
	if maven(dir, version, "-o") != nil {
		if err := maven(dir, version); err != nil {
			return "", err
		}
	}
	return dir, os.WriteFile(complete, nil, 0o600)
}

func maven(dir, version string, args ...string) error {
	args = append(args, "-q", "-B", "compile", "-Doutput="+dir, "-Dredisson.version="+version)
	cmd := exec.Command("mvn", args...)
	cmd.Dir = "java"
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = errors.Join(err, errors.New(string(out)))
	}
	return err
}
