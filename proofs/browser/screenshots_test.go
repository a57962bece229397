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
		b.Fatalf("%v: write it with go test -run TestScreenshots -update", err)
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
	open(t, view{width: 1280}, newOffice(t).home).picture("operator.png")
	open(t, view{width: 1280, dark: true}, newOffice(t).home).picture("operator-dark.png")
	demoPicture(t)
}

// demoPicture is the attack of examples/demo, which takes a while: it is made for a new picture only.
func demoPicture(t *testing.T) {
	t.Helper()
	if !*update {
		open(t, view{width: 390}, serve(t, static("<!DOCTYPE html><p>"))).picture("demo.png")
		return
	}
	b := openDemo(t, view{width: 900, height: 1240}, startDemo(t, buildDemo(t)))
	b.attack()
	eval[bool](b, `(scrollTo({top:document.querySelector("#attack").offsetTop,behavior:"instant"}),true)`)
	b.picture("demo.png")
}
