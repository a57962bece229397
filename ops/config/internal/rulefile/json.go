package rulefile

import (
	"bytes"
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
)

// JSON is read as JSON: YAML 1.1 lacks some of its escapes, such as \/ and pairs of surrogates.

// isJSON reports whether a file is a JSON object.
func isJSON(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) && json.Valid(data)
}

// jsonReader makes nodes of valid JSON.
type jsonReader struct {
	data         []byte
	decoder      *json.Decoder
	at           int // where line and column are
	line, column int
}

func jsonDocument(data []byte) *yaml.Node {
	r := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1, column: 1}
	r.decoder.UseNumber()
	return r.value()
}

// value reads the next value. The parser has bounded how deep values are nested.
func (r *jsonReader) value() *yaml.Node {
	from := int(r.decoder.InputOffset())
	for from < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[from]) >= 0 {
		from++
	}
	n := &yaml.Node{Kind: yaml.ScalarNode}
	n.Line, n.Column = r.place(from)
	token, err := r.decoder.Token()
	if err != nil {
		return nil // cannot happen: the file is valid
	}
	switch token := token.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if token == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for r.decoder.More() {
			n.Content = append(n.Content, r.value())
		}
		_, _ = r.decoder.Token() // the end, which valid JSON has
	case string:
		n.Tag, n.Value, n.Style = "!!str", token, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!int", token.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", "false"
		if token {
			n.Value = "true"
		}
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n
}

// place returns the line and the column of an offset, not smaller than that of the call before.
func (r *jsonReader) place(offset int) (line, column int) {
	for _, c := range string(r.data[r.at:offset]) {
		r.column++
		if c == '\n' {
			r.line, r.column = r.line+1, 1
		}
	}
	r.at = offset
	return r.line, r.column
}
