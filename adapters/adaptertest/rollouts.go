package adaptertest

import (
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// inShadow puts a rule into the shadow.
func inShadow(rule pipeline.Rule) (pipeline.Rule, *pipeline.Rollout) {
	rule.Rollout = pipeline.Shadow()
	return rule, rule.Rollout
}
