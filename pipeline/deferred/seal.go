package deferred

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// minSecret is the length of the shortest secret, in bytes: the length of the keys that are derived from
// it.
const minSecret = sha256.Size

// errForged means that a stored text was not sealed with any of the secrets.
var errForged = errors.New("deferred: what is stored cannot be opened: it was not sealed with these Secrets")

// The kind of a text, so that its seal counts for no other kind.
const (
	sealRequest = "request"
	sealAnswer  = "answer"
)

// seal encrypts a text of a task with AES-256-GCM, which also authenticates it. Without secrets the text is
// readable behind an empty line.
func (d *Requests) seal(what, task string, text []byte) []byte {
	if len(d.o.Secrets) == 0 {
		return append([]byte("\n"), text...)
	}
	box := d.box(d.o.Secrets[0], what, task)
	nonce := make([]byte, box.NonceSize(), box.NonceSize()+len(text)+box.Overhead())
	_, _ = rand.Read(nonce) // never fails
	return box.Seal(nonce, nonce, text, nil)
}

// unseal is the inverse of seal.
func (d *Requests) unseal(what, task string, sealed []byte) (text []byte, err error) {
	if len(d.o.Secrets) > 0 {
		text, err = d.open(what, task, sealed)
	} else if text, err = sealed, errPayload; bytes.HasPrefix(sealed, []byte("\n")) {
		text, err = sealed[1:], nil
	}
	if err != nil {
		d.logError(err, task)
	}
	return text, err
}

// open decrypts what was sealed with any of the secrets.
func (d *Requests) open(what, task string, sealed []byte) ([]byte, error) {
	for _, secret := range d.o.Secrets {
		box := d.box(secret, what, task)
		if len(sealed) < box.NonceSize() {
			break
		}
		if text, err := box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], nil); err == nil {
			return text, nil
		}
	}
	return nil, errForged
}

// box returns the cipher for a text of this queue under its prefix, and of this task. Its key is derived from
// the secret for this text alone, so that it opens no other, and random nonces do not wear out a key.
func (d *Requests) box(secret []byte, what, task string) cipher.AEAD {
	key := hmac.New(sha256.New, secret)
	_, _ = key.Write([]byte("gatehouse deferred aes-256-gcm\n")) // a hash never fails
	_, _ = key.Write([]byte(keyfuncs.JoinTexts(what, d.queue.Key("deferred"), task)))
	block, err := aes.NewCipher(key.Sum(nil))
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	box, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return box
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
