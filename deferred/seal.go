package deferred

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// minSecret is the length of the shortest secret, in bytes: that of the MAC.
const minSecret = sha256.Size

// errForged means that what is stored has no MAC by any of the secrets.
var errForged = errors.New("deferred: what is stored has no valid MAC: it was not stored with these Secrets")

// What a text is, so that its MAC counts for nothing else.
const (
	sealRequest = "request"
	sealAnswer  = "answer"
)

// seal returns a text of a task with a MAC in front, as a line of its own. Without secrets the line is empty.
func (d *Requests) seal(what, task string, text []byte) []byte {
	var line []byte
	if len(d.o.Secrets) > 0 {
		line = d.mac(d.o.Secrets[0], what, task, text)
	}
	return slices.Concat(line, []byte("\n"), text)
}

// unseal is the inverse of seal.
func (d *Requests) unseal(what, task string, sealed []byte) ([]byte, error) {
	line, text, ok := bytes.Cut(sealed, []byte("\n"))
	signed := func(secret []byte) bool { return hmac.Equal(line, d.mac(secret, what, task, text)) }
	err := error(nil)
	switch {
	case len(d.o.Secrets) > 0 && !slices.ContainsFunc(d.o.Secrets, signed):
		err = errForged
	case !ok:
		err = errPayload
	}
	if err != nil {
		d.logError(err, task)
	}
	return text, err
}

// mac returns the MAC of a text: of this queue under its prefix, and of this task.
func (d *Requests) mac(secret []byte, what, task string, text []byte) []byte {
	place := sha256.Sum256([]byte(keyfuncs.JoinTexts(what, d.queue.Key("deferred"), task)))
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write(place[:]) // a hash never fails
	_, _ = mac.Write(text)
	return base64.RawURLEncoding.AppendEncode(nil, mac.Sum(nil))
}

// logError logs why a stored request does not run: the first failure of each kind, and then one per minute,
// since clients and writers to Redis can cause any number of them.
func (d *Requests) logError(err error, task string) {
	skipped, ok := d.failures.Due(err.Error())
	if !ok {
		return
	}
	d.queue.Logger().ErrorContext(context.Background(), "gatehouse: a deferred request does not run",
		"queue", d.queue.Name(), "task", task, "err", err, "failures_not_logged", skipped)
}

// logFull logs that a request was refused for want of room, as logError does.
func (d *Requests) logFull() {
	if skipped, ok := d.failures.Due(delay.ErrFull.Error()); ok {
		d.queue.Logger().ErrorContext(context.Background(),
			"gatehouse: a request is refused, since as much is stored as deferred.Options.MaxStored allows",
			"queue", d.queue.Name(), "max_stored", d.o.MaxStored, "refusals_not_logged", skipped)
	}
}
