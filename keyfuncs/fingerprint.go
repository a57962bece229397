package keyfuncs

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
)

// fingerprintMost is how much of a body a fingerprint reads.
const fingerprintMost = 64 << 10

// Fingerprint finds a text that two requests have in common only if they ask for the same: their method, path, query and body. A
// client that repeats a request under the same Idempotency-Key sends the same; one that uses the key for something else does not.
// It is what the rule of an idempotency guard takes for Which by default.
//
// It reads the first 64 KiB of the body, and leaves the whole body for the handler; two longer bodies are the same if these and the
// stated lengths are. Header fields do not count. A form that [Form] or the application has parsed counts by its fields, and by the
// first 64 KiB of each of its files. A body that can not be read is [ErrMalformed].
//
// Clients that write the same request in other words, such as JSON with its members in another order or a multipart form with a
// boundary of its own each time, need another Func: one that finds what matters, such as the order's number.
func Fingerprint() Func {
	const call = "Fingerprint()"
	return func(r *Request) (string, error) {
		hash := sha256.New()
		length := int64(0)
		_, _ = io.WriteString(hash, r.PostForm.Encode()) // a hash never fails
		if r.MultipartForm != nil {
			if err := hashFiles(hash, r.MultipartForm.File); err != nil {
				return "", malformed(call, "the files can not be read")
			}
		}
		// Also where a form has been parsed: ParseForm leaves a PostForm without fields where the body is something else, such as JSON,
		// which it has not read.
		if r.Body != nil && r.Body != http.NoBody {
			begin, err := io.ReadAll(io.LimitReader(r.Body, fingerprintMost))
			if err != nil {
				return "", malformed(call, "the body can not be read")
			}
			r.Body = &begunBody{io.MultiReader(bytes.NewReader(begin), r.Body), r.Body}
			_, _ = hash.Write(begin)
			if length = int64(len(begin)); length == fingerprintMost {
				length = r.ContentLength
			}
		}
		return fmt.Sprintf("%s %q %q %d %s", r.Method, r.URL.Path, r.URL.RawQuery, length,
			base64.RawURLEncoding.EncodeToString(hash.Sum(nil))), nil
	}
}

// hashFiles hashes the files of a form that has been parsed: their fields, names, sizes and beginnings.
func hashFiles(hash io.Writer, files map[string][]*multipart.FileHeader) error {
	for _, field := range slices.Sorted(maps.Keys(files)) {
		for _, header := range files[field] {
			_, _ = fmt.Fprintf(hash, "%q %q %d ", field, header.Filename, header.Size)
			file, err := header.Open()
			if err != nil {
				return err
			}
			_, err = io.Copy(hash, io.LimitReader(file, fingerprintMost))
			if err = errors.Join(err, file.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// begunBody is a body whose beginning has been read, and is read again.
type begunBody struct {
	io.Reader
	io.Closer
}
