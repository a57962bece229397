package keyfuncs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// JSON finds a member of the JSON object in the request's body, such as a voter's choice: JSON(4096,
// "choice"), or JSON(64<<10, "order", "sku") for one inside another. The client chooses the value freely: as
// Who of a limit each made-up value is a client of its own, with a full limit and with keys in Redis. The
// Content-Type does not count, since handlers often ignore it.
//
// JSON reads the body, no more of it than most bytes, and leaves the whole body for the handler. A longer
// body is [ErrTooLarge], which is answered with 413. Set most to what such a request needs: each request may
// occupy that much memory.
//
// A string is found as its text, a number as its digits if it is an integer without an exponent, and a
// boolean as "true" or "false". Other values are [ErrMalformed]. Names are compared without regard to case,
// as [encoding/json] does for the handler. A member that comes twice with different values is ErrMalformed,
// since readers differ about which one counts. A body that is no JSON object, and a member that is absent,
// null or empty, is [ErrMissing].
//
// JSON panics without a name, for an empty one, and for a size that is not positive.
func JSON(most int, member ...string) Func {
	call := fmt.Sprintf("JSON(%d, %s)", most, strings.Trim(fmt.Sprintf("%q", member), "[]"))
	if most <= 0 || len(member) == 0 {
		misuse("%s needs a size in bytes and the name of a member, such as JSON(4096, \"choice\")", call)
	}
	for _, name := range member {
		if name == "" {
			misuse("%s has an empty name of a member", call)
		}
	}
	member = append([]string(nil), member...)
	notFound := missingField(call, strings.Join(member, "."))
	return described(about{name: call, body: true}, func(r *Request) (string, error) {
		if r.Body == nil || r.Body == http.NoBody {
			return "", notFound
		}
		body, err := readBody(r, call, most)
		if err != nil {
			return "", err
		}
		value, err := memberOf(body, member)
		if err != nil {
			return "", malformed(call, "%v", err)
		}
		return textOf(call, value, notFound)
	})
}

// memberOf returns the value under the path, nil if there is none or if the text is no JSON. It returns an
// error for a member that comes twice with different values.
func memberOf(text []byte, path []string) (value json.RawMessage, err error) {
	if !json.Valid(text) {
		return nil, nil
	}
	value = text
	for _, name := range path {
		decoder := json.NewDecoder(bytes.NewReader(value))
		if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
			return nil, nil //nolint:nilerr // the text is valid, but no object: the member is absent
		}
		value = nil
		for decoder.More() {
			key, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			var found json.RawMessage
			if err := decoder.Decode(&found); err != nil {
				return nil, err
			}
			if text, _ := key.(string); !strings.EqualFold(text, name) {
				continue
			}
			if value != nil && !bytes.Equal(value, found) {
				return nil, errors.New("several different values")
			}
			value = found
		}
	}
	return value, nil
}

// textOf returns the text of a JSON value.
func textOf(call string, value json.RawMessage, notFound error) (string, error) {
	switch {
	case len(value) == 0, string(value) == "null":
		return "", notFound
	case value[0] == '"':
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return "", malformed(call, "the text cannot be read")
		}
		return found(text, notFound)
	case string(value) == "true", string(value) == "false":
		return string(value), nil
	case value[0] == '{', value[0] == '[', bytes.ContainsAny(value, ".eE"), string(value) == "-0":
		// 1.0 and 1e0 would be other texts than 1
		return "", malformed(call, "neither a text, nor an integer, nor a boolean")
	}
	return string(value), nil
}

// readBody reads the whole body and leaves it for the handler. A body of more than most bytes is ErrTooLarge.
func readBody(r *Request, call string, most int) ([]byte, error) {
	if r.ContentLength > int64(most) {
		return nil, tooLarge(call)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(most)+1))
	restore(r, body)
	switch {
	case err != nil:
		return nil, unread(call, err, "the body cannot be read")
	case len(body) > most:
		return nil, tooLarge(call)
	}
	return body, nil
}

func tooLarge(call string) error {
	return &failure{call: call, why: "the body is too large", kind: ErrTooLarge}
}

// restore makes the request's body begin with what has been read of it.
func restore(r *Request, read []byte) {
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), r.Body), r.Body}
}

// unread makes the error for a body that cannot be read, which may be because of a limit in front.
func unread(call string, err error, why string) error {
	if limit := (*http.MaxBytesError)(nil); errors.As(err, &limit) {
		return tooLarge(call)
	}
	return malformed(call, "%s", why)
}
