package browser

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

var update = flag.Bool("update", false, "write the screenshots in docs/images")

// patience is how long a step may take on a busy machine.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // most of the time they wait; a flag wins
	flag.Parse()
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(code)
}

// chromium is the browser that all tests share, each with a tab of its own. The first one starts it.
var chromium struct {
	once    sync.Once
	context context.Context
	stop    func()
	missing bool
	err     error
}

// browser returns the context of the browser. It skips the test, or fails it where nothing may be skipped,
// if there is none.
func browser(t *testing.T) context.Context {
	t.Helper()
	chromium.once.Do(func() {
		program := cmp.Or(os.Getenv("GATEHOUSE_BROWSER"), "chromium")
		path, err := exec.LookPath(program)
		if chromium.missing = err != nil; chromium.missing {
			line := strings.Repeat("*", 78)
			_, _ = fmt.Fprintf(os.Stderr, "%s\n* TESTS ARE SKIPPED: %s NOT FOUND: no page was looked at. Install it "+
				"(Debian: apt-get install chromium)\n%s\n", line, program, line)
			chromium.err = err
			return
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:len(chromedp.DefaultExecAllocatorOptions):len(
			chromedp.DefaultExecAllocatorOptions)], chromedp.ExecPath(path), chromedp.Flag("headless", "new"),
			chromedp.DisableGPU, chromedp.WSURLReadTimeout(patience), chromedp.Flag("lang", "en-US"))
		if os.Getuid() == 0 {
			options = append(options, chromedp.NoSandbox) // Chromium refuses to run as root with it
		}
		allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, stop := chromedp.NewContext(allocator)
		chromium.context, chromium.stop = ctx, func() { stop(); stopAllocator() }
		chromium.err = chromedp.Do(ctx)
	})
	switch {
	case chromium.missing && os.Getenv(redistest.RequireEnv) == "":
		t.Skip("SKIPPED: ", chromium.err)
	case chromium.err != nil:
		t.Fatal("chromium: ", chromium.err)
	}
	return chromium.context
}

// view is how a page is looked at.
type view struct {
	width  int64
	height int64 // 0: 800
	dark   bool
	noJS   bool
}

func (v view) String() string {
	scheme := "light"
	if v.dark {
		scheme = "dark"
	}
	return fmt.Sprintf("%d %s", v.width, scheme)
}

// views are those in which every page is audited.
var views = []view{{width: 390}, {width: 390, dark: true}, {width: 1280}, {width: 1280, dark: true}}

// tab is one tab, and what went wrong in it.
type tab struct {
	*testing.T
	ctx  context.Context
	home string // the host that it may talk to

	mu       sync.Mutex
	problems []string
	asked    []string // the paths that it has requested
	failures []string // requests that failed, and responses of 400 and up
}

// open opens a tab on a page of the server. When the test ends, it fails if the page has logged an error,
// broken its Content-Security-Policy or asked another host.
func open(t *testing.T, v view, address string) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser(t))
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &tab{T: t, ctx: ctx, home: at.Host}
	t.Cleanup(closeTab)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, problem := range b.problems {
			t.Errorf("%v: %s", v, problem)
		}
	})
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	b.look(v)
	b.visit(address)
	return b
}

// look changes how the page is looked at, without loading it again.
func (b *tab) look(v view) {
	b.Helper()
	b.do(func(ctx context.Context, s *chromedp.Target) error { return prepare(ctx, s, v) })
}

func prepare(ctx context.Context, s *chromedp.Target, v view) error {
	scheme := "light"
	if v.dark {
		scheme = "dark"
	}
	if _, err := cdp.Call(ctx, s, network.Enable, network.EnableParams{}); err != nil {
		return err
	}
	if _, err := cdp.Call(ctx, s, log.Enable, cdp.Empty{}); err != nil {
		return err
	}
	if _, err := cdp.Call(ctx, s, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}, // a click hits what stands where the scroll has come to
		},
	}); err != nil {
		return err
	}
	if _, err := cdp.Call(ctx, s, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: v.width, Height: cmp.Or(v.height, 800), DeviceScaleFactor: 1, Mobile: v.width < 500,
	}); err != nil {
		return err
	}
	_, err := cdp.Call(ctx, s, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: v.noJS})
	return err
}

// note collects what should not happen. It is called while the browser's messages are read.
func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("exception: %+v", e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		b.problems = append(b.problems, fmt.Sprintf("console: %v", e.Type))
	case *log.EventEntryAdded:
		if e.Entry.Source == log.EntrySourceNetwork { // whether they are faults is for the tests to say
			b.failures = append(b.failures, e.Entry.Text+" "+e.Entry.URL)
			return
		}
		b.problems = append(b.problems, fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text))
	case *network.EventRequestWillBeSent:
		at, err := url.Parse(e.Request.URL)
		if err != nil || at.Host != b.home {
			b.problems = append(b.problems, "request to "+e.Request.URL)
			return
		}
		b.asked = append(b.asked, at.Path)
	}
}

// do runs a step.
func (b *tab) do(step func(ctx context.Context, s *chromedp.Target) error) {
	b.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if err := chromedp.Do(ctx, chromedp.Func(step)); err != nil {
		b.Fatal(err)
	}
}

// act runs actions of chromedp.
func (b *tab) act(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

func (b *tab) visit(address string) {
	b.Helper()
	b.act(chromedp.Navigate(address))
}

// follow runs actions that lead to another page, and waits until that has come.
func (b *tab) follow(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if _, err := chromedp.RunResponse(ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// eval returns the value of an expression in the page. The page's policy does not apply to it.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

// text is the text of an element, as it is seen.
func (b *tab) text(selector string) string {
	b.Helper()
	text, expression := "", fmt.Sprintf(`(document.querySelector(%q)||{innerText:"(none)"}).innerText`, selector)
	redistest.Eventually(b.T, patience, func() (known bool) { // a page may load itself again meanwhile
		text, known = evaluated[string](b, expression)
		return known
	}, expression)
	return text
}

// evaluated is eval, and false while another page takes the place of this one.
func evaluated[T any](b *tab, expression string) (v T, known bool) {
	b.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil && !loads.MatchString(err.Error()) {
		b.Fatalf("%.200s: %v", expression, err)
	}
	return v, err == nil
}

// loads matches what Chromium says of an expression in a page that another one takes the place of.
var loads = regexp.MustCompile(`navigated|xecution context|Cannot find context`)

// eventually waits for a condition in the page, also while it is loaded.
func (b *tab) eventually(expression string) {
	b.Helper()
	redistest.Eventually(b.T, patience, func() bool {
		yes, known := evaluated[bool](b, expression)
		return known && yes
	}, expression)
}

// serve starts a server on a free port of the loopback.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}
