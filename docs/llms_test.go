package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestThePageForProgramsIsRight: its program compiles, and its test passes.
func TestThePageForProgramsIsRight(t *testing.T) {
	redistest.LeftToCI(t)
	blocks := fence.FindAllStringSubmatch(read(t, "docs/llms.txt"), -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/llms.txt has %d blocks of code, want a program and its test", len(blocks))
	}
	folder, err := filepath.Abs("docs/shown")
	if err != nil {
		t.Fatal(err)
	}
	temporary, overlay := t.TempDir(), struct{ Replace map[string]string }{map[string]string{}}
	for i, name := range []string{"main.go", "main_test.go"} {
		file := filepath.Join(temporary, name)
		if err := os.WriteFile(file, []byte(blocks[i][3]), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(folder, name)] = file
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(temporary, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(temporary, "shown.test") // go test would run it in the folder, which does not exist
	for _, command := range []*exec.Cmd{
		exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", file,
			"-o", program, "./docs/shown"),
		exec.CommandContext(t.Context(), program),
	} {
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	}
}
