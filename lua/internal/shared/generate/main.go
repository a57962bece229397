// Command generate writes the shared blocks into the scripts below the folder in which it runs: go generate
// ./lua. It writes nothing while there is a mistake.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gatehouse-go/gatehouse/lua/internal/shared"
)

func main() {
	if err := generate("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func generate(folder string) error {
	scripts, sources, err := shared.Read(folder)
	if err != nil {
		return err
	}
	updated, err := shared.Update(scripts, sources)
	if err != nil {
		return err
	}
	for file, text := range updated {
		if text == scripts[file] {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
			return err
		}
		fmt.Println("updated", file)
	}
	return nil
}
