package edge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
)

// target returns the file that a path leads to. It may not be there yet.
func target(path string) (string, error) {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		path = file
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		info, err = os.Stat(filepath.Dir(path))
		if err == nil && !info.IsDir() {
			err = errors.New("it is in no folder")
		}
		if err != nil {
			return "", fmt.Errorf("-out %s cannot be written: %w", path, err)
		}
		return path, nil
	case err != nil:
		return "", fmt.Errorf("-out %s cannot be written: %w", path, err)
	case !info.Mode().IsRegular():
		return "", cli.Usagef("-out %s is not a regular file, so it cannot be replaced as a whole", path)
	}
	return path, nil
}

// replace replaces a file as a whole. A reader sees the file of before or the new one, also after a crash.
func replace(path, text string) (err error) {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
