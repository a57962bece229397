package adaptertest

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"
)

// server is an application behind a real connection.
type server struct {
	*httptest.Server
	scene *scene
	ended chan any // one value per ended request: what it panicked with, nil without a panic
}

// serve starts an application. A recoverer outside of it notes the panics and passes them on; outside of that
// is what the server has around its handler, if anything.
func (s *scene) serve(app http.Handler, around ...func(http.Handler) http.Handler) *server {
	s.Helper()
	srv := &server{scene: s, ended: make(chan any, 1000)}
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			value := recover()
			srv.ended <- value
			if value != nil {
				panic(value)
			}
		}()
		app.ServeHTTP(w, r)
	})
	for _, wrap := range around {
		handler = wrap(handler)
	}
	srv.Server = httptest.NewUnstartedServer(handler)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // panics are expected
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!s.http2)
	protocols.SetUnencryptedHTTP2(s.http2)
	srv.Config.Protocols = protocols
	srv.Start()
	s.Cleanup(srv.Close)

	// no request is sent again
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, Protocols: protocols}
	s.Cleanup(transport.CloseIdleConnections)
	srv.Client().Transport = transport
	srv.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return srv
}

// response is an answer, read to its end or as far as it came.
type response struct {
	*http.Response
	body string
	cut  bool // the connection ended before the answer did, or before it began
}

// do sends a request for the thing.
func (srv *server) do(ctx context.Context, method string, headers ...string) response {
	srv.scene.Helper()
	r, err := http.NewRequestWithContext(ctx, method, srv.URL+thing, nil)
	if err != nil {
		srv.scene.Fatal(err)
	}
	set(r.Header, headers)
	answer, err := srv.Client().Do(r)
	if err != nil {
		return response{cut: true}
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // read to its end
	return response{answer, string(body), err != nil}
}

// wait waits until one more request has ended, and returns what it panicked with.
func (srv *server) wait() any {
	srv.scene.Helper()
	select {
	case value := <-srv.ended:
		return value
	case <-time.After(2 * time.Minute):
		srv.scene.Fatal("the request does not end")
		return nil
	}
}
