package mounted

import (
	"errors"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

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
