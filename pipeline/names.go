package pipeline

import "github.com/gatehouse-go/gatehouse/pipeline/rule"

type (
	// Rule is a guard, and how an attempt is made out of a request. It is [rule.Rule].
	Rule = rule.Rule
	// Bans shuts out actors. It is [rule.Bans].
	Bans = rule.Bans
	// Deferrer stores requests that a rule refuses for now. It is [rule.Deferrer].
	Deferrer = rule.Deferrer
	// NoKey says how a rule treats a request without a key. It is [rule.NoKey].
	NoKey = rule.NoKey
	// Rollout enables a rule for a part of the clients. It is [rule.Rollout].
	Rollout = rule.Rollout
	// RolloutReport is the state of a Rollout. It is [rule.RolloutReport].
	RolloutReport = rule.RolloutReport
)

// What a rule does with a request without a key: see [rule.NoKey].
const (
	NoKeyRefuse = rule.NoKeyRefuse
	NoKeySkip   = rule.NoKeySkip
)

// Shadow returns a Rollout that enables a rule for all clients and enforces it for none: see [rule.Shadow].
func Shadow() *Rollout { return rule.Shadow() }
