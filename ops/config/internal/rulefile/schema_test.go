package rulefile

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var write = flag.Bool("write", false, "write schema.json")

// TestSchemaIsThatOfTheFile: schema.json has what the tables of the reader say.
func TestSchemaIsThatOfTheFile(t *testing.T) {
	want, err := json.MarshalIndent(fileSchema(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "../../schema.json"
	want = append(want, '\n')
	if *write {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("schema.json is not what the reader accepts: run go generate ./ops/config/...")
	}
}
