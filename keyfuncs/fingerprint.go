package keyfuncs

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
)

// fingerprintMost is the number of bytes of a body that [Fingerprint] reads: the usual bound of an API's
// request.
const fingerprintMost = 1 << 20

// Fingerprint finds a text that two requests share only if they ask for the same: the same method, host,
// path, query and body. A client that repeats a request under the same Idempotency-Key sends the same text.
// A client that reuses the key for something else does not. The rule of an idempotency guard takes it for
// Which by default.
//
// It reads the whole body, keeps it in memory and leaves it for the handler. A body that does not end is
// kept until the ReadTimeout of the server, which has none by default. Only rules in front bound the number
// of such bodies. Each takes 1.2 MB. A body of more than 1 MiB is [ErrTooLarge], which is answered with
// 413: see [FingerprintUpTo].
//
// The path counts as the client has written it, so that /a/b is not /a%2Fb, with what [http.StripPrefix] has
// taken off. Header fields other than Host do not count. A form that the application has parsed counts by its
// fields and the whole of its files, of any size. A body that cannot be read is [ErrMalformed].
//
// Clients may write the same request differently each time, such as JSON with its members in another order,
// or a multipart form with a new boundary. They need another Func, which finds the part that matters, such
// as the order's number.
func Fingerprint() Func { return fingerprint("Fingerprint()", fingerprintMost) }

// FingerprintUpTo is [Fingerprint] for bodies of at most so many bytes. Each request may occupy that much
// memory while it runs. It panics unless most is positive.
func FingerprintUpTo(most int) Func {
	call := fmt.Sprintf("FingerprintUpTo(%d)", most)
	if most <= 0 {
		misuse("%s reads no body: set the length of the longest body in bytes", call)
	}
	return fingerprint(call, most)
}

func fingerprint(call string, most int) Func {
	return described(about{name: call, body: true}, func(r *Request) (string, error) {
		hash := sha256.New()
		_, _ = io.WriteString(hash, r.PostForm.Encode()) // a hash never fails
		if r.MultipartForm != nil {
			if err := hashFiles(hash, r.MultipartForm.File); err != nil {
				return "", malformed(call, "the files cannot be read")
			}
		}
		// Read the body even where a form has been parsed: ParseForm leaves a PostForm without fields and
		// does not read the body where that is something else, such as JSON.
		length := 0
		if r.Body != nil && r.Body != http.NoBody {
			body, err := readBody(r, call, most)
			if err != nil {
				return "", err
			}
			_, _ = hash.Write(body)
			length = len(body)
		}
		target := r.URL.RequestURI()
		if asked := r.RequestURI; asked != "" && asked != target {
			target = asked + " " + target // something has changed the path, such as http.StripPrefix
		}
		return fmt.Sprintf("%s %q %q %d %s", r.Method, strings.ToLower(r.Host), target, length,
			base64.RawURLEncoding.EncodeToString(hash.Sum(nil))), nil
	})
}

// hashFiles hashes the files of a parsed form: their fields, names, sizes and contents.
func hashFiles(hash io.Writer, files map[string][]*multipart.FileHeader) error {
	for _, field := range slices.Sorted(maps.Keys(files)) {
		for _, header := range files[field] {
			_, _ = fmt.Fprintf(hash, "%q %q %d ", field, header.Filename, header.Size)
			file, err := header.Open()
			if err != nil {
				return err
			}
			_, err = io.Copy(hash, file)
			if err = errors.Join(err, file.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}
