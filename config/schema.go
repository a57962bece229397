package config

//go:generate go test -run ^TestSchemaIsThatOfTheFile$ -write

// fileSchema returns the JSON Schema of files (draft 2020-12), which schema.json of this package has, for
// editors. It is made of the same tables as the reader, so it knows the same fields. The reader demands
// more, such as names that exist.
func fileSchema() schema {
	properties := schema{}
	for _, s := range sections() {
		of := schema{"description": s.doc}
		for k, v := range s.schema {
			of[k] = v
		}
		properties[s.name] = of
	}
	return schema{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"$id":                  "https://raw.githubusercontent.com/gatehouse-go/gatehouse/main/config/schema.json",
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
			of := schema{"description": kind.doc}
			for k, v := range kind.argument {
				of[k] = v
			}
			properties[kind.name] = of
		}
	}
	own := schema{"type": "string", "pattern": namePattern,
		"description": "A key function of the section keys, or of the program."}
	return schema{"anyOf": append(bare, own, schema{"type": "object", "properties": properties,
		"additionalProperties": false, "minProperties": 1, "maxProperties": 1})}
}
