// Package checks has tests only: they check the files of examples/production, the configuration of Envoy in
// the guide of the gateway, and the schema of package config, with the libraries of the programs that read
// them. It is a module of its own because these have many dependencies.
package checks
