package checks

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/ops/config"
)

// replacements are put in the place of each value of a good file.
var replacements = []any{
	"", "zzz", "-1", 0, -1, 1.5, 1e300, true, nil, []any{}, []any{"zzz"}, map[string]any{}, map[string]any{"zzz": 1},
}

// TestSchemaAgreesWithTheReader: an editor that follows the schema marks nothing that the reader takes. The
// files are those of the documentation, and the same with one thing changed.
func TestSchemaAgreesWithTheReader(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../../ops/config/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	files := []string{read(t, "../../config/rules.yaml")}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, block := range blocks.FindAllStringSubmatch(read(t, "../../../docs/config.md"), -1) {
		files = append(files, block[1])
	}
	var taken, marked, refused int
	for _, file := range files {
		var good any
		if err := yaml.Unmarshal([]byte(file), &good); err != nil {
			t.Fatal(err)
		}
		both := func(what string) {
			data, err := json.Marshal(good)
			if err != nil {
				t.Fatal(err)
			}
			var decoded any // as the validator wants it
			if err := json.Unmarshal(data, &decoded); err != nil {
				t.Fatal(err)
			}
			bySchema := schema.Validate(decoded)
			_, byReader := config.Parse("rules.json", data)
			switch {
			case byReader == nil && bySchema != nil:
				t.Errorf("%s: the reader takes what the schema marks: %v\n%s", what, bySchema, data)
			case byReader != nil && what == "as it is":
				t.Errorf("the reader does not take the file: %v\n%s", byReader, data)
			case byReader == nil:
				taken++
			case bySchema != nil:
				marked++
			default:
				refused++
			}
		}
		both("as it is")
		change(good, func(v any) { good = v }, "", both)
	}
	t.Logf("%d files are taken by both, %d by neither, %d by the schema only", taken, marked, refused)
	if len(files) < 6 || taken < 50 || marked < 2*refused {
		t.Error("the schema marks too little, or the files are too few")
	}
}

// change calls both for each way to change one thing at or below a value, and leaves all as it was.
func change(value any, set func(any), path string, both func(what string)) {
	for _, w := range replacements {
		set(w)
		both(fmt.Sprintf("%s is %#v", path, w))
	}
	set(value)
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			at := path + "." + name
			inner := value[name]
			delete(value, name)
			both("without " + at)
			value[name] = inner
			change(inner, func(v any) { value[name] = v }, at, both)
		}
	case []any:
		for i, inner := range value {
			change(inner, func(v any) { value[i] = v }, fmt.Sprintf("%s[%d]", path, i), both)
		}
	}
}

// TestSchemaMarksUnknownFields: a field that is misspelled is marked where it stands.
func TestSchemaMarksUnknownFields(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../../ops/config/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{"guard": {}}`,
		`{"guards": {"a": {"sliding_windw": {"limits": "1/s"}}}}`,
		`{"guards": {"a": {"sliding_window": {"limit": "1/s"}}}}`,
		`{"guards": {"a": {"votes": {"poll": {"per_votr": 1}}}}}`,
		`{"guards": {"a": {"votes": {"polls": {"p": {"per_votr": 1}}}}}}`,
		`{"guards": {"a": {"quota": {"items": 1, "period": {"evry": "day"}}}}}`,
		`{"guards": {"a": {"sliding_window": {"tiers": {"by": "ip", "off": {}}}}}}`,
		`{"lists": {"l": {"keys": "ip"}}}`,
		`{"keys": {"k": {"ipp": {}}}}`,
		`{"keys": {"k": {"ip": {"trust_proxy": []}}}}`,
		`{"keys": {"k": {"hash": {"heder": "X"}}}}`,
		`{"rules": {"r": [{"gard": "a"}]}}`,
		`{"rules": {"r": [{"guard": "a", "who": "ip", "rollout": {"enforce": 1}}]}}`,
		`{"rules": {"r": [{"guard": "a", "who": "ip", "headers": {"hid": true}}]}}`,
	} {
		var file any
		if err := json.Unmarshal([]byte(text), &file); err != nil {
			t.Fatal(err)
		}
		if schema.Validate(file) == nil {
			t.Errorf("the schema takes %s", text)
		}
		if _, err := config.Parse("rules.json", []byte(text)); err == nil {
			t.Errorf("the reader takes %s", text)
		}
	}
}
