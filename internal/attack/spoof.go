package attack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Forged are the header fields by which a client may claim another address.
var Forged = []string{
	"X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP", "True-Client-IP", "X-Client-IP",
	"Fly-Client-IP", "Fastly-Client-IP", "X-Azure-ClientIP",
}

const (
	// spoofTries is how often a field is tried, each time with another address.
	spoofTries = 2
	// refusedInARow is how many refusals in a row mean that a limit is used up.
	refusedInARow = 3
)

// Effects of forged fields.
const (
	// Ignored: the request was refused as it is without the field.
	Ignored = "ignored"
	// ChangesKey: the request was admitted, while those without the field were refused before and after.
	ChangesKey = "changes the key"
	// Undecided: requests without the field were admitted too.
	Undecided = "undecided"
)

// Spoofed is the effect of a forged field.
type Spoofed struct {
	Field  string `json:"field"`
	Effect string `json:"effect"`
	// Status is that of the last request with the field.
	Status int `json:"status"`
}

// Spoof uses up a limit, and then sends requests that claim other addresses, each between two that do not.
// The error says why that could not be done; what was found until then is returned too.
func (a *Attacker) Spoof(ctx context.Context) ([]Spoofed, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Duration)
	defer cancel()
	if err := a.useUp(ctx); err != nil {
		return nil, err
	}
	found := make([]Spoofed, 0, len(Forged))
	for i, name := range Forged {
		s := Spoofed{Field: name, Effect: Ignored}
		for try := range spoofTries {
			if s.Effect != Ignored {
				break
			}
			if err := a.forge(ctx, &s, fmt.Sprintf("198.51.100.%d", 1+spoofTries*i+try)); err != nil {
				return found, outOfRequests(err)
			}
		}
		found = append(found, s)
	}
	return found, nil
}

// useUp sends requests until they are refused.
func (a *Attacker) useUp(ctx context.Context) error {
	for refused := 0; refused < refusedInARow; {
		answer, err := a.send(ctx, nil)
		if errors.Is(err, ErrNoRequestsLeft) {
			return fmt.Errorf("%w, and none was refused for long: there is no limit, or it is larger than -n %d",
				err, a.Requests)
		}
		if err != nil {
			return err
		}
		refused++
		if answer.Admitted {
			refused = 0
		}
	}
	return nil
}

// forge tries one address.
func (a *Attacker) forge(ctx context.Context, s *Spoofed, address string) error {
	value := address
	if s.Field == "Forwarded" {
		value = "for=" + address
	}
	var answers [3]Answer
	for i, forged := range []http.Header{nil, {http.CanonicalHeaderKey(s.Field): {value}}, nil} {
		var err error
		if answers[i], err = a.send(ctx, forged); err != nil {
			return err
		}
	}
	s.Status = answers[1].Status
	switch {
	case answers[0].Admitted || answers[2].Admitted:
		s.Effect = Undecided
		return a.useUp(ctx) // the limit had units again
	case answers[1].Admitted:
		s.Effect = ChangesKey
	}
	return nil
}

func outOfRequests(err error) error {
	if errors.Is(err, ErrNoRequestsLeft) {
		return fmt.Errorf("%w: not all fields were tried: raise -n", err)
	}
	return err
}
