// Package recipes has guards for common endpoints, to copy: each file is one recipe, with a test that shows
// what it does. docs/guides/recipes.md explains them, and says what they do not protect against.
package recipes
