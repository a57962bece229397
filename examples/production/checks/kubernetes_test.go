package checks

import (
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of shop.yaml, as the types of the Kubernetes API.
type manifests struct {
	account    corev1.ServiceAccount
	deployment appsv1.Deployment
	service    corev1.Service
	budget     policyv1.PodDisruptionBudget
	network    networkingv1.NetworkPolicy
}

// readManifests decodes each object strictly: a field that the API does not have is an error.
func readManifests(t *testing.T) (m manifests) {
	t.Helper()
	objects := map[metav1.TypeMeta]metav1.Object{
		{APIVersion: "v1", Kind: "ServiceAccount"}:                  &m.account,
		{APIVersion: "apps/v1", Kind: "Deployment"}:                 &m.deployment,
		{APIVersion: "v1", Kind: "Service"}:                         &m.service,
		{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:      &m.budget,
		{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}: &m.network,
	}
	for _, text := range strings.Split(read(t, "../kubernetes/shop.yaml"), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatal(err)
		}
		object, known := objects[kind]
		if !known {
			t.Fatalf("%s is unexpected, or there twice", kind)
		}
		delete(objects, kind)
		if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if object.GetName() != "shop" {
			t.Errorf("%s has the name %q", kind, object.GetName())
		}
	}
	if len(objects) > 0 {
		t.Fatalf("shop.yaml lacks %v", objects)
	}
	for what, count := range map[string]int{
		"containers": len(m.deployment.Spec.Template.Spec.Containers),
		"volumes":    len(m.deployment.Spec.Template.Spec.Volumes),
		"spreads":    len(m.deployment.Spec.Template.Spec.TopologySpreadConstraints),
		"ports":      len(m.service.Spec.Ports),
	} {
		if count != 1 {
			t.Fatalf("%d %s, want one", count, what)
		}
	}
	return m
}

// TestManifestsFitTogether: selectors, ports, volumes and secrets name what is there.
func TestManifestsFitTogether(t *testing.T) {
	m := readManifests(t)
	d, n := m.deployment.Spec, m.network.Spec
	pod := d.Template.Spec
	pods := d.Template.Labels
	for what, selector := range map[string]map[string]string{
		"the deployment": d.Selector.MatchLabels, "the service": m.service.Spec.Selector,
		"the budget":         m.budget.Spec.Selector.MatchLabels,
		"the network policy": n.PodSelector.MatchLabels,
		"the spread":         pod.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		if len(selector) == 0 || !maps.Equal(selector, pods) {
			t.Errorf("%s selects %v, and the pods have %v", what, selector, pods)
		}
	}
	app := pod.Containers[0]
	ports := map[string]bool{}
	for _, p := range app.Ports {
		ports[p.Name] = true
	}
	for what, port := range map[string]string{
		"the service":          m.service.Spec.Ports[0].TargetPort.String(),
		"startup":              app.StartupProbe.HTTPGet.Port.String(),
		"liveness":             app.LivenessProbe.HTTPGet.Port.String(),
		"readiness":            app.ReadinessProbe.HTTPGet.Port.String(),
		"clients may reach":    n.Ingress[0].Ports[0].Port.String(),
		"Prometheus may reach": n.Ingress[1].Ports[0].Port.String(),
	} {
		if !ports[port] {
			t.Errorf("%s: no container port %q", what, port)
		}
	}
	if n.Ingress[0].Ports[0].Port.String() != "http" || len(n.Ingress[0].Ports) != 1 {
		t.Error("clients reach more than http")
	}
	if app.LivenessProbe.HTTPGet.Path != "/healthz" || app.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("liveness depends on what readiness asks, or the other way round")
	}
	if v := pod.Volumes[0]; v.Secret == nil || v.Secret.SecretName == "" ||
		app.VolumeMounts[0].Name != v.Name || !app.VolumeMounts[0].ReadOnly {
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
	if !is(true, pod.SecurityContext.RunAsNonRoot) || !is(true, security.ReadOnlyRootFilesystem) ||
		!is(false, security.AllowPrivilegeEscalation) ||
		len(app.Resources.Requests) < 2 || app.Resources.Limits.Memory().IsZero() {
		t.Errorf("the container may do too much: %+v, %v", security, app.Resources)
	}
}

// TestKubernetesGrantsTheTimeOfAStop: a pod is not killed while it stops, and enough others run meanwhile.
func TestKubernetesGrantsTheTimeOfAStop(t *testing.T) {
	m := readManifests(t)
	d := m.deployment.Spec
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
	grants := time.Duration(*d.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if app.Lifecycle.PreStop.Sleep.Seconds < 3 || needs < 20*time.Second || grants < needs+2*time.Second {
		t.Errorf("a stop needs up to %v, and has %v", needs, grants)
	}
	if least := m.budget.Spec.MinAvailable.IntValue(); least >= int(*d.Replicas) || least < 1 {
		t.Errorf("of %d pods %d have to be available", *d.Replicas, least)
	}
	if r := d.Strategy.RollingUpdate; r.MaxUnavailable.IntValue() != 0 || r.MaxSurge.IntValue() < 1 {
		t.Error("a deployment takes pods away before others are ready")
	}
}

// is reports whether a field is set, and to this.
func is(want bool, field *bool) bool { return field != nil && *field == want }
