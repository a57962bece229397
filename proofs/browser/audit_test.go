package browser

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// auditScript returns what is wrong with a page, one line each: see audit.js.
//
//go:embed audit.js
var auditScript string

// audit fails the test for each fault of the page.
func (b *tab) audit(v view) {
	b.Helper()
	for _, fault := range eval[[]string](b, auditScript) {
		b.Errorf("%v: %s", v, fault)
	}
	if !v.dark { // colours change no order
		b.keyboard(v)
	}
}

// keyboard goes through the page with the Tab key: each control gets the focus, in the order of the page, and
// shows it. A page that brings itself up to date pauses meanwhile; what it had asked for before may still come.
func (b *tab) keyboard(v view) {
	b.Helper()
	const press = `((e,is)=>{const on=e?.textContent===is;if(on)e.click();return on})` +
		`(document.querySelector("#bar button"),%q)`
	if eval[bool](b, fmt.Sprintf(press, "Pause")) {
		defer eval[bool](b, fmt.Sprintf(press, "Go on"))
	}
	eval[bool](b, `(new MutationObserver(()=>{window.changed=true}).observe(document.body,`+
		`{childList:true,subtree:true}),true)`)
	for fault := b.tabs(); fault != ""; fault = b.tabs() {
		if !eval[bool](b, `window.changed`) {
			b.Errorf("%v: %s", v, fault)
			return
		}
	}
}

// tabs returns what is wrong with the way through the page.
func (b *tab) tabs() (fault string) {
	b.Helper()
	const controls = `[...document.querySelectorAll("a[href],button,input:not([type=hidden]),select,textarea,` +
		`summary,[tabindex='0']")].filter(e=>e.checkVisibility())`
	n := eval[int](b, controls+".length")
	eval[bool](b, `(e=>(window.changed=false,e.tabIndex=-1,e.focus(),e.removeAttribute("tabindex"),true))(document.body)`)
	for i := range min(n, 20) { // the rest is more of the same
		b.act(chromedp.KeyEvent(kb.Tab))
		got := eval[string](b, `(()=>{const all=`+controls+`,e=document.activeElement,s=getComputedStyle(e);`+
			`return all.indexOf(e)+" "+(s.outlineStyle!=="none"&&parseFloat(s.outlineWidth)>=1)})()`)
		index, visible, _ := strings.Cut(got, " ")
		if want := itoa(i); index != want || visible != "true" {
			return fmt.Sprintf("Tab %d leads to control %s, focus visible: %s", i+1, index, visible)
		}
	}
	return ""
}

// TestTheAuditFindsFaults: an audit that finds nothing proves nothing.
func TestTheAuditFindsFaults(t *testing.T) {
	b := open(t, views[2], serve(t, static(`<!DOCTYPE html><html><head><title></title></head><body>
<h1>One</h1><h3>Three</h3><input><button></button><img src="data:,"><a href="#"></a>
<p id="x" style="color:#999">pale</p>
<p id="x" style="width:1900px">wide</p></body></html>`)))
	faults := strings.Join(eval[[]string](b, auditScript), "\n")
	for _, want := range []string{"no language", "no title", "no main", "h3 after h1", "input has no name",
		"button has no name", "img has no name", "a has no name", "contrast", "two elements", "wider than"} {
		if !strings.Contains(faults, want) {
			t.Errorf("the audit does not find %q:\n%s", want, faults)
		}
	}
}
