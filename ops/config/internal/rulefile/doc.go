// Package rulefile reads the contents of a file of rules, with the place of each mistake, and has their JSON
// Schema.
//
// Each value has a form (forms.go): it reads the value, and says what the schema says of it. The tables of
// forms are in keys.go, guards.go and rules.go. file.go reads a whole file by them.
package rulefile
