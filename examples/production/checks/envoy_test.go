package checks_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"sigs.k8s.io/yaml"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// TestEnvoyTakesTheConfigurationOfTheGuide: by Envoy's own definitions each field is there, its value is one that
// Envoy takes, and none is deprecated.
func TestEnvoyTakesTheConfigurationOfTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/guides/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(guide), "\n## Envoy\n")
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(section)
	if block == nil {
		t.Fatal("the guide has no configuration of Envoy")
	}
	text, err := yaml.YAMLToJSONStrict([]byte(block[1]))
	if err != nil {
		t.Fatal(err)
	}
	var conf bootstrap.Bootstrap
	if err := protojson.Unmarshal(text, &conf); err != nil {
		t.Fatal(err)
	}
	filters := map[string]bool{}
	err = protorange.Range(conf.ProtoReflect(), func(path protopath.Values) error {
		last := path.Index(-1)
		if field := last.Step.FieldDescriptor(); last.Step.Kind() == protopath.FieldAccessStep &&
			field.Options().(*descriptorpb.FieldOptions).GetDeprecated() {
			t.Errorf("%v is deprecated", path.Path)
		}
		m, ok := last.Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		filters[string(m.Descriptor().Name())] = true
		if m, ok := m.Interface().(interface{ ValidateAll() error }); ok && m.ValidateAll() != nil {
			t.Errorf("%v: %v", path.Path, m.ValidateAll())
		}
		return nil
	})
	if err != nil || !filters["ExtAuthz"] || !filters["Router"] {
		t.Errorf("%v, %v", filters, err)
	}
}
