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

// fingerprintMost is how many bytes of a body a fingerprint reads.
const fingerprintMost = 64 << 10

// Fingerprint finds a text that two requests share only if they ask for the same: the same method, path,
// query and body. A client that repeats a request under the same Idempotency-Key sends the same text; one
// that reuses the key for something else does not. The rule of an idempotency guard takes it for Which by
// default.
//
// It reads the first 64 KiB of the body and leaves the whole body for the handler. Two longer bodies count
// as the same if their first 64 KiB and their stated lengths are the same. Header fields do not count. A
// form that [Form] or the application has parsed counts by its fields, and by the first 64 KiB of each of
// its files. A body that cannot be read is [ErrMalformed].
//
// Clients may write the same request differently each time, such as JSON with its members in another order,
// or a multipart form with a new boundary. They need another Func, which finds what matters, such as the
// order's number.
func Fingerprint() Func {
	const call = "Fingerprint()"
	return func(r *Request) (string, error) {
		hash := sha256.New()
		length := int64(0)
		_, _ = io.WriteString(hash, r.PostForm.Encode()) // a hash never fails
		if r.MultipartForm != nil {
			if err := hashFiles(hash, r.MultipartForm.File); err != nil {
				return "", malformed(call, "the files cannot be read")
			}
		}
		// Read the body even where a form has been parsed: ParseForm leaves a PostForm without fields and
		// does not read the body where that is something else, such as JSON.
		if r.Body != nil && r.Body != http.NoBody {
			begin, err := io.ReadAll(io.LimitReader(r.Body, fingerprintMost))
			if err != nil {
				return "", malformed(call, "the body cannot be read")
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

// hashFiles hashes the files of a parsed form: their fields, names, sizes and first bytes.
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

// begunBody is a body whose beginning has been read and is replayed.
type begunBody struct {
	io.Reader
	io.Closer
}
