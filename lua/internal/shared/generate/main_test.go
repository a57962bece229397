package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGenerateUpdatesTheScriptsInPlace(t *testing.T) {
	folder := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(folder, "vote/shared"), 0o700); err != nil {
		t.Fatal(err)
	}
	const used = "-- shared one\nold\n-- end one\n"
	write("vote/shared/one.lua", "-- About the block.\n\nredis.call('DEL', KEYS[1])\n")
	write("vote/a.lua", used)
	write("vote/b.lua", used+"-- shared two\n-- end two\n")

	expect := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(folder, "vote/a.lua")); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if err := generate(folder); err == nil {
		t.Error("an unknown block is no mistake")
	}
	expect(used)
	write("vote/b.lua", used)
	if err := generate(folder); err != nil {
		t.Error(err)
	}
	expect("-- shared one\nredis.call('DEL', KEYS[1])\n-- end one\n")
}
