// Package examples has the code that the pages of docs show, in its test files, so that it compiles: a file for
// each page. Its tests run the commands that the pages show, and compare the answers.
package examples
