package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// readMessage reads one whole request or reply of RESP2 or RESP3 and returns its bytes unchanged. It does
// not know streamed strings and aggregates, which Redis does not send.
func readMessage(r *bufio.Reader) ([]byte, error) {
	var msg []byte
	for missing := 1; missing > 0; missing-- {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		msg = append(msg, line...)
		switch line[0] {
		case '*', '~', '>', '%', '|', '$', '=', '!':
		default: // a line is all of it
			continue
		}
		n, err := strconv.Atoi(string(bytes.TrimSuffix(line[1:], []byte("\r\n"))))
		if err != nil {
			return nil, fmt.Errorf("redistest: not RESP: %q", line)
		}
		switch line[0] {
		case '*', '~', '>':
			missing += max(n, 0)
		case '%':
			missing += 2 * n
		case '|':
			missing += 2*n + 1 // attributes come before what they belong to
		default: // a string, which is nil when n is -1
			if n < 0 {
				continue
			}
			start := len(msg)
			msg = append(msg, make([]byte, n+2)...)
			if _, err := io.ReadFull(r, msg[start:]); err != nil {
				return nil, err
			}
		}
	}
	return msg, nil
}

// isPush reports whether the message answers no request.
func isPush(msg []byte) bool { return msg[0] == '>' }
