package mounted

import (
	"errors"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// part is a part of an attempt, apart from its actor. Parts are numbers rather than functions, so that what
// they fill in takes no allocation.
type part uint8

const (
	partResource part = iota
	partID
	partItem
	partCost
	partToken
	partOrigin
)

// partsOf returns the parts that the rule's attempts have.
func (r *Rule) partsOf() []part {
	return needed(map[part]bool{
		partResource: r.What != nil, partID: r.ID != nil, partItem: r.Which != nil, partCost: r.Cost != nil,
		partToken: r.Traits.KeepsToken, partOrigin: r.Origin != nil,
	})
}

// errNobody means that a request does not say whose it is.
var errNobody = errors.New("nobody to count")

// attempt makes the attempt of a request.
func (r *Rule) attempt(req *keyfuncs.Request) (a core.Attempt, err error) {
	if a.Actor, err = r.actor(req); err != nil {
		if errors.Is(err, keyfuncs.ErrMissing) && keyOf(err) == "who" {
			err = fmt.Errorf("%w: %w", errNobody, err)
		}
		return a, err
	}
	if r.logins != nil {
		r.logins.found()
	}
	for _, part := range r.has {
		switch part {
		case partResource:
			a.Resource, err = text("what", r.What, req)
		case partID:
			a.ID, err = r.id(a.Actor, req)
		case partItem:
			a.Item, err = text("which", r.Which, req)
		case partCost:
			a.Cost, err = r.cost(req)
		case partToken:
			a.Token = answers.TokenOf(req.Request, r.Name)
		case partOrigin:
			if a.Origin, err = text("origin", r.Origin, req); errors.Is(err, keyfuncs.ErrMissing) {
				err = nil
			}
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

// actor returns who makes the request: a path, if the rule has levels.
func (r *Rule) actor(req *keyfuncs.Request) (string, error) {
	who, err := text("who", r.Who, req)
	if len(r.Under) == 0 || err != nil {
		return who, err
	}
	path := make([]string, 0, len(r.Under)+1)
	for i, under := range r.Under {
		level, err := text("under", under, req)
		absent := i > 0 && errors.Is(err, keyfuncs.ErrMissing) && !errors.Is(err, keyfuncs.ErrMalformed)
		if err != nil && !absent {
			return "", err
		}
		path = append(path, level)
	}
	return keyfuncs.JoinTexts(append(path, who)...), nil
}

// id returns the operation ID of an attempt by the actor, or none.
func (r *Rule) id(actor string, req *keyfuncs.Request) (string, error) {
	id, err := text("id", r.ID, req)
	switch {
	case errors.Is(err, keyfuncs.ErrMissing) && r.Traits.NeedsID:
		return "", fmt.Errorf("%w: %w", errNobody, err)
	case errors.Is(err, keyfuncs.ErrMissing):
		return "", nil
	case err == nil && !r.BareID:
		return keyfuncs.JoinTexts(actor, id), nil
	}
	return id, err
}

// cost returns how many units the request takes.
func (r *Rule) cost(req *keyfuncs.Request) (int64, error) {
	cost, err := r.Cost(req)
	switch {
	case err != nil:
		return 0, &keyError{"cost", fmt.Errorf("%w: %w", core.ErrInvalid, err)}
	case cost < 1:
		return 0, &keyError{"cost", fmt.Errorf("%w: %d is less than 1", core.ErrInvalid, cost)}
	}
	return cost, nil
}

// text calls a key function. Empty text counts as nothing found, so that a function of the application cannot
// put everybody into one bucket.
func text(field string, f keyfuncs.Func, req *keyfuncs.Request) (string, error) {
	found, err := f(req)
	if err == nil && found == "" {
		err = keyfuncs.ErrMissing
	}
	if err != nil {
		return "", &keyError{field, err}
	}
	return found, nil
}

// keyError is the error of a key function or list of the rule.
type keyError struct {
	field string // see core.Event.Key
	err   error
}

func (e *keyError) Error() string { return e.field + ": " + e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

// keyOf returns the field that an error is about, or "".
func keyOf(err error) string {
	if from := (*keyError)(nil); errors.As(err, &from) {
		return from.field
	}
	return ""
}
