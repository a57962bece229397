package proxies

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// StandIns ask as Traefik and Envoy do, over sockets, by the configurations of the guide. They do what the
// documentation of forwardAuth and of ext_authz says, since the programs cannot be installed as packages.
var StandIns = []Program{
	{From: gateway.Traefik, Name: "traefik", standIn: traefik},
	{From: gateway.Envoy, Name: "envoy", standIn: envoy},
}

// standIn asks before it passes a request on.
type standIn struct {
	client http.Client // asks the gateway
	app    *url.URL
	// ask makes the question about a request.
	ask func(r *http.Request) *http.Request
	// allowed takes over fields of the answer, and reports whether the request may pass. The status 0 says that
	// there is no answer.
	allowed func(answer *http.Response, request, response http.Header) bool
	// refuse answers a request that may not pass.
	refuse func(w http.ResponseWriter, answer *http.Response)
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := s.client.Do(s.ask(r).WithContext(r.Context()))
	if err != nil {
		answer = &http.Response{Body: http.NoBody}
	}
	defer func() { _ = answer.Body.Close() }()
	added := http.Header{}
	if !s.allowed(answer, r.Header, added) {
		s.refuse(w, answer)
		return
	}
	(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = s.app.Scheme, s.app.Host
			p.Out.URL.Path, p.Out.URL.RawPath = "", ""
			path, query, _ := strings.Cut(p.In.RequestURI, "?")
			p.Out.URL.Opaque, p.Out.URL.RawQuery = path, query // as the client has written it
			p.Out.Header["X-Forwarded-For"] = slices.Clone(p.In.Header["X-Forwarded-For"])
		},
		ModifyResponse: func(resp *http.Response) error {
			for name, values := range added {
				resp.Header[name] = append(resp.Header[name], values...)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	}).ServeHTTP(w, r)
}

// copyAnswer answers a client with the answer of the gateway.
func copyAnswer(w http.ResponseWriter, answer *http.Response) {
	maps.Copy(w.Header(), answer.Header)
	w.Header().Del("Connection")
	w.Header().Del("Content-Length")
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body) // the client may have gone
}

func peer(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

// hopByHop are the fields that Traefik does not send to the server that it asks.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailers",
	"Transfer-Encoding", "Upgrade"}

// traefik is forwardAuth
// (https://doc.traefik.io/traefik/reference/routing-configuration/http/middlewares/forwardauth/) behind an entry point without trusted addresses.
func traefik(t *testing.T, conf string, app *url.URL) *standIn {
	var file struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth struct {
					Address                  string   `yaml:"address"`
					TrustForwardHeader       bool     `yaml:"trustForwardHeader"`
					AuthResponseHeaders      []string `yaml:"authResponseHeaders"`
					AddAuthCookiesToResponse []string `yaml:"addAuthCookiesToResponse"`
				} `yaml:"forwardAuth"`
			} `yaml:"middlewares"`
		} `yaml:"http"`
	}
	decode(t, conf, &file)
	auth := file.HTTP.Middlewares["gatehouse"].ForwardAuth
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	return &standIn{app: app,
		client: http.Client{Transport: transport, Timeout: 30 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		ask: func(r *http.Request) *http.Request {
			for name := range r.Header { // of a client that is not trusted
				if strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" {
					r.Header.Del(name)
				}
			}
			r.URL = r.URL.JoinPath() // sanitizePath
			r.RequestURI = r.URL.RequestURI()
			q := question(http.MethodGet, auth.Address)
			maps.Copy(q.Header, r.Header)
			for _, list := range r.Header["Connection"] {
				for name := range strings.SplitSeq(list, ",") {
					q.Header.Del(strings.TrimSpace(name))
				}
			}
			for _, name := range hopByHop {
				q.Header.Del(name)
			}
			for name, value := range map[string]string{"X-Forwarded-For": peer(r), "X-Forwarded-Method": r.Method,
				"X-Forwarded-Proto": "http", "X-Forwarded-Host": r.Host, "X-Forwarded-Uri": r.RequestURI} {
				q.Header.Set(name, value)
			}
			r.Header.Set("X-Forwarded-For", peer(r))
			return q
		},
		allowed: func(answer *http.Response, request, response http.Header) bool {
			if answer.StatusCode/100 != 2 {
				return false
			}
			for _, name := range auth.AuthResponseHeaders {
				request.Del(name)
				if values := answer.Header.Values(name); len(values) > 0 {
					request[http.CanonicalHeaderKey(name)] = values
				}
			}
			for _, cookie := range answer.Cookies() {
				if slices.Contains(auth.AddAuthCookiesToResponse, cookie.Name) {
					response.Add("Set-Cookie", cookie.String())
				}
			}
			return true
		},
		refuse: func(w http.ResponseWriter, answer *http.Response) {
			if answer.StatusCode == 0 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			copyAnswer(w, answer)
		},
	}
}

// matchers is a ListStringMatcher of Envoy.
type matchers struct {
	Patterns []struct {
		Exact, Prefix string
		SafeRegex     struct{ Regex string } `yaml:"safe_regex"`
	}
}

func (m *matchers) match(name string) bool {
	name = strings.ToLower(name)
	for _, p := range m.Patterns {
		if p.Exact == name || p.Prefix != "" && strings.HasPrefix(name, p.Prefix) ||
			p.SafeRegex.Regex != "" && regexp.MustCompile("^(?:"+p.SafeRegex.Regex+")$").MatchString(name) {
			return true
		}
	}
	return false
}

// extAuthz is the part of Envoy's configuration that the stand-in follows.
type extAuthz struct {
	FailureModeAllow bool     `yaml:"failure_mode_allow"`
	AllowedHeaders   matchers `yaml:"allowed_headers"`
	HTTPService      struct {
		PathPrefix string `yaml:"path_prefix"`
		ServerURI  struct {
			Timeout time.Duration
		} `yaml:"server_uri"`
		AuthorizationResponse struct {
			OnSuccess matchers `yaml:"allowed_client_headers_on_success"`
		} `yaml:"authorization_response"`
	} `yaml:"http_service"`

	usesRemoteAddress bool
}

// find looks for the parts in the tree of the configuration.
func (e *extAuthz) find(t *testing.T, node *yaml.Node) {
	t.Helper()
	for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
		switch key, value := node.Content[i].Value, node.Content[i+1].Value; {
		case key == "@type" && strings.HasSuffix(value, ".ExtAuthz"):
			if err := node.Decode(e); err != nil {
				t.Fatal(err)
			}
		case key == "use_remote_address":
			e.usesRemoteAddress = value == "true"
		}
	}
	for _, child := range node.Content {
		e.find(t, child)
	}
}

// envoy is ext_authz over HTTP
// (https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/filters/http/ext_authz/v3/ext_authz.proto).
func envoy(t *testing.T, conf string, app *url.URL) *standIn {
	var authz extAuthz
	var file yaml.Node
	decode(t, conf, &file)
	authz.find(t, &file)
	socket := regexp.MustCompile(`pipe: \{path: ([^}\s]+)\}`).FindStringSubmatch(conf)
	if socket == nil || authz.HTTPService.PathPrefix == "" {
		t.Fatal("the configuration of Envoy names no gateway")
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket[1])
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &standIn{app: app,
		client: http.Client{Transport: transport, Timeout: authz.HTTPService.ServerURI.Timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		ask: authz.ask,
		allowed: func(answer *http.Response, _, response http.Header) bool {
			for name, values := range answer.Header {
				if answer.StatusCode == http.StatusOK && authz.HTTPService.AuthorizationResponse.OnSuccess.match(name) {
					response[name] = values
				}
			}
			return answer.StatusCode == http.StatusOK || failed(answer) && authz.FailureModeAllow
		},
		refuse: func(w http.ResponseWriter, answer *http.Response) {
			if failed(answer) {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			copyAnswer(w, answer)
		},
	}
}

// failed reports whether Envoy takes an answer for a failure of the server that it asks.
func failed(answer *http.Response) bool {
	return answer.StatusCode == 0 || answer.StatusCode >= http.StatusInternalServerError
}

func (e *extAuthz) ask(r *http.Request) *http.Request {
	if r.URL.IsAbs() {
		r.RequestURI = r.URL.RequestURI()
	}
	if e.usesRemoteAddress {
		r.Header["X-Forwarded-For"] = []string{strings.Join(append(r.Header["X-Forwarded-For"], peer(r)), ",")}
	}
	q := question(r.Method, "http://gatehouse/")
	q.Host = r.Host
	path, query, _ := strings.Cut(r.RequestURI, "?")
	q.URL.Opaque, q.URL.RawQuery = e.HTTPService.PathPrefix+path, query
	q.URL.ForceQuery = strings.HasSuffix(r.RequestURI, "?") && query == ""
	for name, values := range r.Header {
		if e.AllowedHeaders.match(name) || name == "Authorization" {
			q.Header[name] = values
		}
	}
	return q
}

func question(method, address string) *http.Request {
	q := httptest.NewRequestWithContext(context.Background(), method, address, nil)
	q.RequestURI, q.Body = "", nil // it is sent
	return q
}

func decode(t *testing.T, conf string, to any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(conf), to); err != nil {
		t.Fatal(err)
	}
}
