// Package exported holds the exported names of the released modules, with their types, to api/*.txt.
package exported
