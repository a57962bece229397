package pipeline

import "github.com/gatehouse-go/gatehouse/pipeline/rule"

// Source has the pipeline of a middleware. Rules that change while requests are served, such as those of
// package config, are a Source; a [Pipeline] is the Source of itself. The function Follow of each adapter
// makes a middleware of a Source.
type Source interface {
	// Pipeline returns the pipeline for a request that arrives now. It is called once per request, from many
	// goroutines at once, and never returns nil.
	Pipeline() *Pipeline
}

// Pipeline implements [Source]: it returns the pipeline itself.
func (p *Pipeline) Pipeline() *Pipeline { return p }

// MustFollow panics if a source is nil or has no pipeline. Adapters call it at set-up.
func MustFollow(s Source) {
	if rule.IsNil(s) || s.Pipeline() == nil {
		panic("gatehouse: Follow has no rules to follow: pass what config.Live.Source returns, or a Pipeline")
	}
}
