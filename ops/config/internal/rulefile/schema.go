package rulefile

//go:generate go test -run ^TestSchemaIsThatOfTheFile$ -write

// fileSchema returns the JSON Schema of files (draft 2020-12), for editors: ops/config/schema.json. It is
// made of the tables that read files, so it knows the same fields. Reading demands more, such as names that
// exist.
func fileSchema() schema {
	properties := schema{}
	for _, s := range sections() {
		properties[s.name] = described(s.doc, s.schema)
	}
	return schema{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"$id":                  "https://raw.githubusercontent.com/gatehouse-go/gatehouse/main/ops/config/schema.json",
		"title":                "Gatehouse: guards and rules",
		"type":                 "object",
		"properties":           properties,
		"additionalProperties": false,
		"required":             []string{"rules"},
		"$defs":                schema{"key": keySchema()},
	}
}

// keySchema is the schema of a key function: its name, or a mapping of the name to its argument.
func keySchema() schema {
	var bare []any
	properties := schema{}
	for _, kind := range keyKinds() {
		if kind.bare != nil {
			bare = append(bare, schema{"const": kind.name, "description": kind.doc})
		}
		if kind.argument != nil {
			properties[kind.name] = described(kind.doc, kind.argument)
		}
	}
	own := schema{"type": "string", "pattern": namePattern,
		"description": "A key function of the section keys, or of the program."}
	return schema{"anyOf": append(bare, own, schema{"type": "object", "properties": properties,
		"additionalProperties": false, "minProperties": 1, "maxProperties": 1})}
}
