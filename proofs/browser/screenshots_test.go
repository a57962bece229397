package browser

import (
	"bytes"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// pictureMost is how many bytes a picture in docs/images may have.
const pictureMost = 150_000

// picture writes a picture of what the window shows to docs/images, where -update is set. In any case it
// checks that there is one of this size.
func (b *tab) picture(name string) {
	b.Helper()
	path := filepath.Join("..", "..", "docs", "images", name)
	if *update {
		shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			b.Fatal(err)
		}
		if shot, err = smaller(shot); err != nil {
			b.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, shot, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	there, err := os.ReadFile(path)
	if err != nil {
		b.Fatalf("%v: write it with make screenshots", err)
	}
	if len(there) > pictureMost {
		b.Errorf("%s has %d bytes, want %d at most", name, len(there), pictureMost)
	}
	if _, err := png.Decode(bytes.NewReader(there)); err != nil {
		b.Errorf("%s: %v", name, err)
	}
}

// smaller encodes a picture again, as small as the encoder can.
func smaller(shot []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, from)
	return out.Bytes(), err
}

func TestScreenshots(t *testing.T) {
	refusal := open(t, view{width: 390, height: 420}, serve(t, http.HandlerFunc(refusals))+"/limited?wait=42s")
	refusal.picture("refusal.png")
	o := newOffice(t)
	o.attempts(t, "203.0.113.7", "198.51.100.40", "ann", "2001:db8::/64")
	open(t, view{width: 1280}, o.home).picture("operator.png")
	open(t, view{width: 1280, dark: true}, o.home).picture("operator-dark.png")
	demoPicture(t)
}

// demoPicture is the first view of examples/demo, a few seconds after it was opened, without a click. It fits
// on each width, and fingers hit what they aim at.
func demoPicture(t *testing.T) {
	t.Helper()
	b := openDemo(t, view{width: 1280, height: 660}, startDemo(t, buildDemo(t)))
	b.picture("demo.png")
	for _, width := range []int64{1280, 768, 360} {
		b.look(view{width: width, height: 800})
		wide := eval[int](b, `(e=>e.scrollWidth-e.clientWidth)(document.documentElement)`)
		if wide > 0 {
			t.Errorf("at %d the page is %d pixels wider than the window", width, wide)
		}
	}
	const small = `[...document.querySelectorAll("a[href]:not(.skip),button,input,summary")].filter(e=>{
  const box=e.getBoundingClientRect();
  return e.checkVisibility()&&(box.width<44||box.height<44);
}).map(e=>e.outerHTML.slice(0,80))`
	if got := eval[[]string](b, small); len(got) > 0 {
		t.Errorf("targets below 44 by 44 pixels: %q", got)
	}
}
