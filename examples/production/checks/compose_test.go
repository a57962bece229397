package checks

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// system loads the compose.yaml of the production example.
func system(t *testing.T) *types.Project {
	t.Helper()
	return load(t, "..")
}

// load loads the compose.yaml of a folder as docker compose does, which checks it by the schema of compose
// files.
func load(t *testing.T, of string) *types.Project {
	t.Helper()
	folder, err := filepath.Abs(of)
	if err != nil {
		t.Fatal(err)
	}
	file := types.ConfigFile{Filename: "compose.yaml",
		Content: []byte(read(t, filepath.Join(of, "compose.yaml")))}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{WorkingDir: folder,
		ConfigFiles: []types.ConfigFile{file}}, func(o *loader.Options) { o.SetProjectName("test", true) })
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// pinned is the name of an image with a version, down to the patch.
var pinned = regexp.MustCompile(`^[\w./-]+:v?\d+\.\d+\.\d+$`)

// TestComposeFileIsWhole: images have versions, what is mounted is in the folder, and nothing but nginx and
// Grafana is reachable from outside, and these from this machine only.
func TestComposeFileIsWhole(t *testing.T) {
	project := system(t)
	want := []string{"app1", "app2", "grafana", "nginx", "prometheus", "redis1", "redis2", "sentinel1",
		"sentinel2", "sentinel3"}
	if names := project.ServiceNames(); !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Errorf("services %v", names)
	}
	wantWhole(t, project, "nginx", "grafana")
	for name, service := range project.Services {
		if _, outside := service.Networks["front"]; outside && strings.HasPrefix(name, "redis") {
			t.Errorf("nginx's network has %s", name)
		}
	}
	if !project.Networks["back"].Internal {
		t.Error("Redis's network is not internal")
	}
}

// wantWhole checks images, mounts and ports. Those of the named services only are published.
func wantWhole(t *testing.T, project *types.Project, published ...string) {
	t.Helper()
	for name, service := range project.Services {
		if built := service.Build != nil && service.Image == ""; !built && !pinned.MatchString(service.Image) {
			t.Errorf("%s has the image %s, without a version", name, service.Image)
		}
		for _, volume := range service.Volumes {
			if volume.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(volume.Source); err != nil || !volume.ReadOnly {
				t.Errorf("%s mounts %s: %v, read-only: %t", name, volume.Source, err, volume.ReadOnly)
			}
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" || !slices.Contains(published, name) {
				t.Errorf("%s publishes %s on %s", name, port.Published, port.HostIP)
			}
		}
	}
}

// TestComposeFileOfTheEdgeIsWhole: and nginx and the gateway share the volume of the socket.
func TestComposeFileOfTheEdgeIsWhole(t *testing.T) {
	const edge = "../../edge"
	project := load(t, edge)
	wantWhole(t, project, "nginx")
	gateway := project.Services["gatehouse"]
	if _, err := os.Stat(filepath.Join(gateway.Build.Context, gateway.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	socket := regexp.MustCompile(`server unix:([^;]+);`).FindStringSubmatch(read(t, edge+"/edge.conf"))
	if socket == nil || !slices.Contains(gateway.Command, "unix:"+socket[1]) {
		t.Fatalf("nginx asks at %q, and the gateway runs %q", socket, gateway.Command)
	}
	for _, name := range []string{"nginx", "gatehouse"} {
		if !slices.ContainsFunc(project.Services[name].Volumes, func(v types.ServiceVolumeConfig) bool {
			return v.Type == types.VolumeTypeVolume && v.Source == "run" && v.Target == filepath.Dir(socket[1])
		}) {
			t.Errorf("%s has no volume for %s", name, socket[1])
		}
	}
}

// TestComposeTrustsItsProxyOnly: the app believes what nginx says about clients, and nobody else.
func TestComposeTrustsItsProxyOnly(t *testing.T) {
	project := system(t)
	nginx := project.Services["nginx"].Networks["front"].Ipv4Address
	for _, name := range []string{"app1", "app2"} {
		trusted := ""
		if value := project.Services[name].Environment["TRUSTED_PROXIES"]; value != nil {
			trusted = *value
		}
		if nginx == "" || trusted != nginx+"/32" {
			t.Errorf("%s trusts %q, and nginx is %q", name, trusted, nginx)
		}
	}
}

// TestComposeGrantsTheTimeOfAStop: the app is not killed while it stops.
func TestComposeGrantsTheTimeOfAStop(t *testing.T) {
	app := system(t).Services["app1"]
	requests, err := time.ParseDuration(*app.Environment["SHUTDOWN_TIMEOUT"])
	if err != nil || app.StopGracePeriod == nil {
		t.Fatalf("%v, %v", err, app.StopGracePeriod)
	}
	if grants := time.Duration(*app.StopGracePeriod); grants < requests+drainTime(t)+2*time.Second {
		t.Errorf("the app has %v to stop: requests may take %v, settlements %v", grants, requests, drainTime(t))
	}
}

// drainTime is the constant of the app.
func drainTime(t *testing.T) time.Duration {
	t.Helper()
	constant := regexp.MustCompile(`const drainTime = (\d+) \* time\.Second`)
	found := constant.FindStringSubmatch(read(t, "../main.go"))
	if found == nil {
		t.Fatal("main.go has no drainTime")
	}
	d, err := time.ParseDuration(found[1] + "s")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestNoFileHasASecret: passwords come from files that are not in the repository.
func TestNoFileHasASecret(t *testing.T) {
	for name, secret := range system(t).Secrets {
		if filepath.Base(filepath.Dir(secret.File)) != "secrets" {
			t.Errorf("the secret %s is in %s", name, secret.File)
		}
	}
	if !strings.Contains(read(t, "../.gitignore"), "/secrets/\n") {
		t.Error(".gitignore lets ./secrets into the repository")
	}
	// A key and a value that is neither a file, a variable nor a reference.
	secret := regexp.MustCompile(
		`(?i)(pass(word)?|secret|token|requirepass|masterauth|auth-pass)["']?\s*[:= ]\s*["']?[0-9a-z]{8,}`)
	err := filepath.WalkDir("..", func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(file, ".go") || strings.HasSuffix(file, ".sum") ||
			strings.HasSuffix(file, ".md") {
			return err
		}
		for _, line := range strings.Split(read(t, file), "\n") {
			if found := secret.FindString(line); found != "" && !strings.Contains(line, "$password") &&
				!strings.Contains(found, "redis_password") && !strings.Contains(found, "shop-secrets") {
				t.Errorf("%s: %s", file, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
