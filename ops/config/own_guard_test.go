package config_test

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
)

// ownGuard is a guard of the program that lets everything pass.
type ownGuard struct{}

func (ownGuard) Name() string { return "own" }

func (ownGuard) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	return core.Decision{Guard: "own", Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
}

func (ownGuard) Settle(context.Context, core.Decision, core.Ending) error { return nil }

func (ownGuard) Traits() core.Traits { return core.Traits{KeepsOnFailure: true, Outage: core.FailOpen} }
