package answers

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Pages do not reload themselves (meta refresh). Everybody who waits for a sale would come back in the same
// moment, and readers with a screen reader would lose their place. Visitors in line each have their own
// time: see appendLine.

// pageStyle is the style sheet of pages. It follows the browser's light or dark mode.
const pageStyle = ":root{color-scheme:light dark}" +
	"body{font:1rem/1.6 system-ui,sans-serif;max-width:34rem;margin:12vh auto;padding:0 1.25rem;" +
	"overflow-wrap:break-word}" +
	"h1{font-size:1.6rem;line-height:1.25}" +
	"time,[role=timer]{font-weight:600;font-variant-numeric:tabular-nums}" +
	"a:not([hidden]){display:inline-block;padding:.3rem 0}" +
	"a:focus-visible{outline:3px solid;outline-offset:3px}"

// pageScript counts down, in the language of the page and the time zone of its reader. It goes by the time
// since the page came, so that a wrong clock in the browser does not matter. Screen readers are told once, at
// the end: role=timer announces nothing, and role=status what appears in it.
const pageScript = `{const d=document,p=d.getElementById("wait"),t=p.querySelector("time"),` +
	`c=p.querySelector("[role=timer]"),a=d.getElementById("ready").firstChild,w=+c.dataset.wait,` +
	`e=Date.now()+w*1e3;let l=d.documentElement.lang,i;` +
	`try{Intl.getCanonicalLocales(l)}catch{l=[]}` +
	`const r=n=>new Intl.RelativeTimeFormat(l,{numeric:n});` +
	`t.textContent=new Date(e+999).toLocaleString(l,w>43200?` +
	`{dateStyle:"long",timeStyle:"short"}:{timeStyle:"medium"});` +
	`const s=()=>{const n=Math.max(0,Math.ceil((e-Date.now())/1e3)),` +
	`[x,u]=n<120?[1,"second"]:n<7200?[60,"minute"]:n<172800?[3600,"hour"]:[86400,"day"];` +
	`c.textContent=r("always").format(Math.ceil(n/x),u);` +
	`if(!n){clearInterval(i);a.textContent=a.textContent||r("auto").format(0,"second");` +
	`p.hidden=true;a.hidden=false}};` +
	`i=setInterval(s,1e3);s()}`

// The values of Content-Security-Policy of pages. They allow nothing except pageStyle and pageScript.
var (
	policyOfPlainPages  = "default-src 'none'; style-src " + sourceHash(pageStyle)
	policyOfWaitingPage = policyOfPlainPages + "; script-src " + sourceHash(pageScript)
)

func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// pagePolicy returns the Content-Security-Policy of the refusal's page.
func (f *Refusal) pagePolicy() string {
	if f.inLine() {
		return policyOfLinePage
	}
	if f.RetryAfter() > 0 {
		return policyOfWaitingPage
	}
	return policyOfPlainPages
}

// page returns a page without external resources. Without scripts it says at which moment, and how long from
// now, its reader can come back; with scripts it counts down.
func (f *Refusal) page(text Text, r *http.Request) []byte {
	title, lang := html.EscapeString(text.Title), html.EscapeString(langOf(text))
	waits := f.inLine()
	b := append(make([]byte, 0, 3072), `<!DOCTYPE html>
<html lang="`...)
	b = append(append(b, lang...), `">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>`...)
	b = append(append(b, title...), "</title>\n"...)
	if waits {
		b = append(strconv.AppendInt(append(b, `<noscript><meta http-equiv="refresh" content="`...), f.lineWait(), 10),
			"\"></noscript>\n"...)
	}
	b = append(b, "<style>"+pageStyle+"</style>\n</head>\n<body>\n"...)
	b = append(b, "<main dir=\"auto\">\n<h1>"...)
	b = append(append(b, title...), "</h1>\n<p>"...)
	b = append(append(b, html.EscapeString(text.Detail)...), "</p>\n"...)
	if tells := f.described().PageStatus != 0; waits || tells {
		l := f.lineOf()
		if tells && l.text != "" {
			b = append(append(append(b, `<p id="text">`...), html.EscapeString(l.text)...), "</p>\n"...)
		}
		if waits {
			b = append(f.appendLine(b, &l, langOf(text)), "</main>\n<script>"+lineScript+"</script>\n"...)
			return append(b, "</body>\n</html>\n"...)
		}
	}
	english := text.english()
	wait := f.RetryAfter()
	if wait > 0 {
		b = appendWait(b, wait, text, english)
	}
	if wait > 0 || f.deferral != nil {
		b = append(f.appendReady(b, r, text, english), '\n')
	}
	b = append(b, "</main>\n"...)
	if wait > 0 {
		b = append(b, "<script>"+pageScript+"</script>\n"...)
	}
	return append(b, "</body>\n</html>\n"...)
}

// english reports whether words of ours fit the page.
func (t *Text) english() bool {
	lang, _, _ := strings.Cut(t.Lang, "-")
	return lang == "" || strings.EqualFold(lang, "en")
}

// appendWait appends when the reader can come back.
func appendWait(b []byte, wait time.Duration, text Text, english bool) []byte {
	at := time.Now().UTC().Add(wait + time.Second - 1).Truncate(time.Second) // rounded up: never too early
	form := "15:04:05 UTC"
	if wait > 12*time.Hour {
		form = "2006-01-02 15:04 UTC"
		at = at.Add(time.Minute - 1).Truncate(time.Minute)
	}
	words := html.EscapeString(text.Wait)
	if words == "" && english {
		words = "You can come back at"
	}
	b = append(append(b, `<p id="wait">`...), words...)
	b = append(b, ` <time datetime="`...)
	b = at.AppendFormat(b, time.RFC3339)
	b = at.AppendFormat(append(b, `">`...), form)
	b = append(b, `</time>, <span role="timer" data-wait="`...)
	b = append(strconv.AppendInt(b, int64(wait/time.Second), 10), `">`...)
	if english {
		b = appendDuration(b, wait)
	}
	return append(b, "</span></p>\n"...)
}

// appendDuration appends the time until an event, rounded up as people say it.
func appendDuration(b []byte, d time.Duration) []byte {
	unit, name := 24*time.Hour, "day"
	switch {
	case d < 2*time.Minute:
		unit, name = time.Second, "second"
	case d < 2*time.Hour:
		unit, name = time.Minute, "minute"
	case d < 48*time.Hour:
		unit, name = time.Hour, "hour"
	}
	n := int64((d-1)/unit) + 1
	b = strconv.AppendInt(append(b, "in "...), n, 10)
	b = append(append(b, ' '), name...)
	if n != 1 {
		b = append(b, 's')
	}
	return b
}

// appendReady appends what the script shows when the wait is over: a link that repeats the request where that
// is safe, else words. A page about a stored request has the link to its answer, from the beginning.
func (f *Refusal) appendReady(b []byte, r *http.Request, text Text, english bool) []byte {
	words, where, hidden := html.EscapeString(text.Ready), "", " hidden"
	if f.deferral != nil {
		where, hidden = html.EscapeString(f.deferral.Location), ""
	}
	switch {
	case words != "":
	case english && f.deferral != nil:
		words = "See how your request stands."
	case english:
		words = "You can try again now."
	default:
		words = where // of a countdown that has ended the script says "now" in the page's language
	}
	b = append(b, `<p id="ready" role="status">`...)
	if f.deferral == nil && r.Method != http.MethodGet {
		return append(append(append(b, `<span hidden>`...), words...), "</span></p>"...)
	}
	b = append(append(append(b, `<a href="`...), where...), `"`+hidden+`>`...)
	return append(append(b, words...), "</a></p>"...)
}
