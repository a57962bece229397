// Package config makes guards and rules out of a file, in YAML or JSON, and changes them while requests are
// served.
//
//	guards:
//	  site: {sliding_window: {limits: "10/s, 100/min"}}
//	rules:
//	  everywhere:
//	    - {guard: site, who: ip}
//
// Most programs call [Watch] once, and mount the lists of rules by their names:
//
//	live, err := config.Watch(ctx, gate, "rules.yaml")
//	if err != nil {
//		log.Fatal(err) // each mistake on a line of its own, with its place
//	}
//	handler := nethttpmw.Follow(live.Source("everywhere"))(mux)
//
// [Load] only checks a file: it needs no Redis. [Config.Build] makes the guards and rules once, without
// following the file. A rule of a file is the same value as one of code, a pipeline.Rule, and its guards
// have the same keys in Redis.
//
// docs/config.md describes the file, and schema.json of this package is its JSON Schema, for editors.
package config
