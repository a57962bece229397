// Package examples has the code that the pages of docs show, in its test files, so that it compiles. Its
// tests run the commands that the pages show, and compare the answers.
package examples
