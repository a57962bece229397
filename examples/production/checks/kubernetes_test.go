package checks

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// These are the fields of the Kubernetes API that the manifests use, by its names. A field that is not here is
// an error: a typing mistake, or one to add.

type labelSelector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type probe struct {
	HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
	PeriodSeconds    int                         `yaml:"periodSeconds"`
	TimeoutSeconds   int                         `yaml:"timeoutSeconds"`
	FailureThreshold int                         `yaml:"failureThreshold"`
}

type container struct {
	Name, Image string
	Ports       []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Env          []struct{ Name, Value string }
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	StartupProbe    probe `yaml:"startupProbe"`
	LivenessProbe   probe `yaml:"livenessProbe"`
	ReadinessProbe  probe `yaml:"readinessProbe"`
	Resources       struct{ Requests, Limits map[string]string }
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
}

type podSpec struct {
	ServiceAccountName            string `yaml:"serviceAccountName"`
	AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
	TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
		RunAsUser      int                   `yaml:"runAsUser"`
		RunAsGroup     int                   `yaml:"runAsGroup"`
		FSGroup        int                   `yaml:"fsGroup"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []container
	Volumes    []struct {
		Name   string
		Secret struct {
			SecretName string `yaml:"secretName"`
		}
	}
	TopologySpreadConstraints []struct {
		MaxSkew           int           `yaml:"maxSkew"`
		TopologyKey       string        `yaml:"topologyKey"`
		WhenUnsatisfiable string        `yaml:"whenUnsatisfiable"`
		LabelSelector     labelSelector `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
}

type metadata struct {
	Name                string
	Labels, Annotations map[string]string
}

type deployment struct {
	Replicas int
	Selector labelSelector
	Strategy struct {
		Type          string
		RollingUpdate struct {
			MaxUnavailable int `yaml:"maxUnavailable"`
			MaxSurge       int `yaml:"maxSurge"`
		} `yaml:"rollingUpdate"`
	}
	Template struct {
		Metadata metadata
		Spec     podSpec
	}
}

type service struct {
	Selector map[string]string
	Ports    []struct {
		Name       string
		Port       int
		TargetPort string `yaml:"targetPort"`
	}
}

type disruptionBudget struct {
	MinAvailable int `yaml:"minAvailable"`
	Selector     labelSelector
}

type peers []struct {
	NamespaceSelector labelSelector `yaml:"namespaceSelector"`
	PodSelector       labelSelector `yaml:"podSelector"`
}

type policyPorts []struct{ Protocol, Port string }

type networkPolicy struct {
	PodSelector labelSelector `yaml:"podSelector"`
	PolicyTypes []string      `yaml:"policyTypes"`
	Ingress     []struct {
		From  peers
		Ports policyPorts
	}
	Egress []struct {
		To    peers
		Ports policyPorts
	}
}

// manifests decodes each object of shop.yaml strictly.
func manifests(t *testing.T) (d deployment, s service, b disruptionBudget, n networkPolicy) {
	t.Helper()
	specs := map[string]any{
		"apps/v1 Deployment": &d, "v1 Service": &s, "policy/v1 PodDisruptionBudget": &b,
		"networking.k8s.io/v1 NetworkPolicy": &n, "v1 ServiceAccount": nil,
	}
	all := yaml.NewDecoder(strings.NewReader(read(t, "../kubernetes/shop.yaml")))
	for {
		var object struct {
			APIVersion                   string `yaml:"apiVersion"`
			Kind                         string
			Metadata                     metadata
			AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
			Spec                         yaml.Node
		}
		all.KnownFields(true)
		err := all.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kind := object.APIVersion + " " + object.Kind
		spec, known := specs[kind]
		if !known {
			t.Fatalf("%s is unexpected, or there twice", kind)
		}
		delete(specs, kind)
		if object.Metadata.Name != "shop" {
			t.Errorf("%s has the name %q", kind, object.Metadata.Name)
		}
		if spec == nil {
			continue
		}
		text, err := yaml.Marshal(&object.Spec)
		if err != nil {
			t.Fatal(err)
		}
		strict := yaml.NewDecoder(bytes.NewReader(text))
		strict.KnownFields(true)
		if err := strict.Decode(spec); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if len(specs) > 0 {
		t.Fatalf("shop.yaml lacks %v", specs)
	}
	return d, s, b, n
}

// TestManifestsFitTogether: selectors, ports, volumes and secrets name what is there.
func TestManifestsFitTogether(t *testing.T) {
	d, s, b, n := manifests(t)
	pods := d.Template.Metadata.Labels
	for what, selector := range map[string]map[string]string{
		"the deployment": d.Selector.MatchLabels, "the service": s.Selector, "the budget": b.Selector.MatchLabels,
		"the network policy": n.PodSelector.MatchLabels,
		"the spread":         d.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		if len(selector) == 0 || !maps.Equal(selector, pods) {
			t.Errorf("%s selects %v, and the pods have %v", what, selector, pods)
		}
	}
	app := d.Template.Spec.Containers[0]
	ports := map[string]bool{}
	for _, p := range app.Ports {
		ports[p.Name] = true
	}
	for what, port := range map[string]string{
		"the service": s.Ports[0].TargetPort, "startup": app.StartupProbe.HTTPGet.Port,
		"liveness": app.LivenessProbe.HTTPGet.Port, "readiness": app.ReadinessProbe.HTTPGet.Port,
		"clients may reach": n.Ingress[0].Ports[0].Port, "Prometheus may reach": n.Ingress[1].Ports[0].Port,
	} {
		if !ports[port] {
			t.Errorf("%s: no container port %q", what, port)
		}
	}
	if n.Ingress[0].Ports[0].Port != "http" || len(n.Ingress[0].Ports) != 1 {
		t.Error("clients reach more than http")
	}
	if app.LivenessProbe.HTTPGet.Path != "/healthz" || app.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("liveness depends on what readiness asks, or the other way round")
	}
	if v := d.Template.Spec.Volumes[0]; v.Secret.SecretName == "" || app.VolumeMounts[0].Name != v.Name ||
		!app.VolumeMounts[0].ReadOnly {
		t.Errorf("secrets: %+v, mounted as %+v", v, app.VolumeMounts[0])
	}
	main := read(t, "../main.go")
	for _, e := range app.Env {
		if !strings.Contains(main, `"`+e.Name+`"`) {
			t.Errorf("the app does not know %s", e.Name)
		}
		if strings.HasSuffix(e.Name, "_FILE") && !strings.HasPrefix(e.Value, app.VolumeMounts[0].MountPath+"/") {
			t.Errorf("%s is not in the volume of secrets", e.Name)
		}
	}
	if !pinned.MatchString(app.Image) {
		t.Errorf("the image %s has no version", app.Image)
	}
	security := app.SecurityContext
	if !d.Template.Spec.SecurityContext.RunAsNonRoot || !security.ReadOnlyRootFilesystem ||
		security.AllowPrivilegeEscalation == nil || *security.AllowPrivilegeEscalation ||
		len(app.Resources.Requests) < 2 || app.Resources.Limits["memory"] == "" {
		t.Errorf("the container may do too much: %+v, %v", security, app.Resources)
	}
}

// TestKubernetesGrantsTheTimeOfAStop: a pod is not killed while it stops, and enough others run meanwhile.
func TestKubernetesGrantsTheTimeOfAStop(t *testing.T) {
	d, _, b, _ := manifests(t)
	app := d.Template.Spec.Containers[0]
	needs := time.Duration(app.Lifecycle.PreStop.Sleep.Seconds)*time.Second + drainTime(t)
	for _, e := range app.Env {
		if e.Name == "SHUTDOWN_TIMEOUT" {
			requests, err := time.ParseDuration(e.Value)
			if err != nil {
				t.Error(err)
			}
			needs += requests
		}
	}
	grants := time.Duration(d.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if app.Lifecycle.PreStop.Sleep.Seconds < 3 || needs < 20*time.Second || grants < needs+2*time.Second {
		t.Errorf("a stop needs up to %v, and has %v", needs, grants)
	}
	if b.MinAvailable >= d.Replicas || b.MinAvailable < 1 {
		t.Errorf("of %d pods %d have to be available", d.Replicas, b.MinAvailable)
	}
	if d.Strategy.RollingUpdate.MaxUnavailable != 0 || d.Strategy.RollingUpdate.MaxSurge < 1 {
		t.Error("a deployment takes pods away before others are ready")
	}
}
