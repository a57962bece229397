package answers

import (
	"cmp"
	"html"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core/kit"
)

// The page of somebody who waits in line: see kit.Answer.Waits. It asks by itself whether they may come in.
// Without scripts it loads itself again after the time that the guard has chosen, so that not all come at
// once.

// lineScript asks as a program does, and changes the figures in place. A screen reader is told of a new
// position, at most once per answer. Whatever is not about the same state of the line is loaded as a page.
// An answer that says nothing about the line, as when a limit in front or the server is overloaded, is
// waited out.
const lineScript = `{const d=document,g=i=>d.getElementById(i),m=g("line"),l=m.lang,o=m.querySelector("time");` +
	`let t,due,busy;` +
	`const u=(n,x)=>new Intl.NumberFormat(l,{style:"unit",unit:x,unitDisplay:"long"}).format(n),` +
	`w=e=>{const a=/^PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?$/.exec(e)||[];` +
	`return["hour","minute","second"].map((x,i)=>+a[i+1]?u(+a[i+1],x):"").filter(x=>x).join(l=="en"?" ":"")},` +
	`set=(i,x)=>{const e=g(i);if(e&&e.textContent!=x)e.textContent=x},` +
	`wait=s=>{clearTimeout(t);due=Date.now()+s*1e3;t=setTimeout(ask,s*1e3)},` +
	`ask=async()=>{if(busy)return;busy=1;let s=+m.dataset.wait;` +
	`try{const r=await fetch(location.href,{headers:{Accept:"application/problem+json"},cache:"no-store",` +
	`redirect:"manual"}),h=r.headers,p=/^application\/problem\+json/.test(h.get("Content-Type"));` +
	`s=+h.get("Retry-After")||s;const j=p?await r.json():{};if(!p&&r.body)r.body.cancel();` +
	`if(j.state?j.state!=m.dataset.state:r.status!=429&&r.status<500)return location.reload();` +
	`if(j.text)set("text",j.text);` +
	`if(j.position){set("position",j.position.toLocaleString(l));set("ahead",(j.position-1).toLocaleString(l));` +
	`g("estimate").parentNode.hidden=!j.estimate;set("estimate",w(j.estimate))}` +
	`}catch{}busy=0;wait(s)};` +
	`if(o)o.textContent=new Date(o.dateTime).toLocaleString(l,{dateStyle:"long",timeStyle:"short"});` +
	`g("cookies").hidden=navigator.cookieEnabled&&isSecureContext;` +
	`addEventListener("pageshow",e=>{if(e.persisted)location.reload()});` +
	`d.addEventListener("visibilitychange",()=>{if(!d.hidden&&Date.now()>due)ask()});` +
	`wait(+m.dataset.wait)}`

var policyOfLinePage = policyOfPlainPages + "; script-src " + sourceHash(lineScript) + "; connect-src 'self'"

// lineWords are the words of the page in a language, apart from title and detail.
type lineWords struct {
	lang                                          string
	position, ahead, estimate                     string // in front of the figures
	opens, paused, closed, cookies                string
	draw, number, commitment, drawn, seed         string
	hour, hours, minute, minutes, second, seconds string // with what is between the number and the unit
	between                                       string // two units
}

var wordsOfLine = []lineWords{
	{
		lang: "en", position: "Your place in line:", ahead: "Ahead of you:", estimate: "Estimated wait: about",
		opens: "It opens at", paused: "Nobody is let in at the moment. You keep your place.",
		closed:  "If it goes on, you have your place.",
		cookies: "Your browser does not keep your place: this page needs cookies and HTTPS.",
		draw:    "The order is drawn: how to check it", number: "Your number:",
		commitment: "SHA-256 of the seed, told before the opening:",
		drawn:      "Numbers drawn, from 0 on:", seed: "Seed; the order is that of the SHA-256 of seed:number:",
		hour: " hour", hours: " hours", minute: " minute", minutes: " minutes", second: " second",
		seconds: " seconds", between: " ",
	},
	{
		lang: "zh-Hans", position: "您的排队位置：", ahead: "您前面的人数：", estimate: "预计等待时间：约",
		opens: "开放时间：", paused: "目前暂停放行，您的位置会保留。", closed: "如果继续放行，您的位置仍会保留。",
		cookies: "您的浏览器无法保留您的位置：此页面需要 Cookie 和 HTTPS。",
		draw:    "排队顺序由抽签决定：查看验证方法", number: "您的编号：",
		commitment: "开放前公布的种子 SHA-256：", drawn: "参与抽签的编号数量（从 0 开始）：",
		seed: "种子（按“种子:编号”的 SHA-256 排序即为排队顺序）：",
		hour: "小时", hours: "小时", minute: "分钟", minutes: "分钟", second: "秒", seconds: "秒钟",
	},
}

// line is what the page tells of somebody who waits.
type line struct {
	position        int64
	estimate, state string
	opens           time.Time
	text            string // by the operator
	number, drawn   int64  // in the draw, if there is a commitment
	commitment      string
	seed            string // after the draw
}

// lineOf returns what the details of the refusal's decision tell: see kit.Answer.Waits.
func (f *Refusal) lineOf() (l line) {
	for _, d := range kit.DetailsOf(f.Decision) {
		switch d.Name {
		case "position":
			l.position, _ = d.Value.(int64)
		case "estimate":
			l.estimate, _ = d.Value.(string)
		case "state":
			l.state, _ = d.Value.(string)
		case "opens":
			l.opens, _ = d.Value.(time.Time)
		case "text":
			l.text, _ = d.Value.(string)
		case "number":
			l.number, _ = d.Value.(int64)
		case "drawn":
			l.drawn, _ = d.Value.(int64)
		case "commitment":
			l.commitment, _ = d.Value.(string)
		case "seed":
			l.seed, _ = d.Value.(string)
		}
	}
	return l
}

// appendLine appends how somebody stands who waits, and the script that asks again.
func (f *Refusal) appendLine(b []byte, l *line, lang string) []byte {
	words := &wordsOfLine[0]
	if primary, _, _ := strings.Cut(lang, "-"); strings.EqualFold(primary, "zh") {
		words = &wordsOfLine[1]
	}
	b = append(append(append(b, `<div id="line" lang="`...), words.lang...), `" data-wait="`...)
	b = strconv.AppendInt(b, f.lineWait(), 10)
	b = append(append(append(b, `" data-state="`...), html.EscapeString(l.state)...), "\">\n"...)
	if text := map[string]string{"paused": words.paused, "closed": words.closed}[l.state]; text != "" {
		b = append(append(append(b, "<p>"...), text...), "</p>\n"...)
	}
	if !l.opens.IsZero() && l.state == "lobby" {
		at := l.opens.UTC()
		b = append(append(append(b, "<p>"...), words.opens...), ` <time datetime="`...)
		b = at.AppendFormat(b, time.RFC3339)
		b = append(at.AppendFormat(append(b, `">`...), "2006-01-02 15:04 UTC"), "</time></p>\n"...)
	}
	if l.position > 0 {
		b = append(append(b, `<p role="status" aria-live="polite" aria-atomic="true">`...), words.position...)
		b = append(appendGrouped(append(b, ` <strong id="position">`...), l.position), "</strong></p>\n<p>"...)
		b = append(append(b, words.ahead...), ` <span id="ahead">`...)
		b = append(appendGrouped(b, l.position-1), "</span></p>\n<p"...)
		if l.estimate == "" {
			b = append(b, " hidden"...)
		}
		b = append(append(append(b, '>'), words.estimate...), ` <span id="estimate">`...)
		b = append(words.appendTime(b, l.estimate), "</span></p>\n"...)
	}
	b = words.appendDraw(b, l)
	return append(append(append(b, `<p id="cookies" hidden>`...), words.cookies...), "</p>\n</div>\n"...)
}

// appendDraw appends the data by which a visitor from before the opening can check their place.
func (w *lineWords) appendDraw(b []byte, l *line) []byte {
	if l.commitment == "" {
		return b
	}
	b = append(append(append(b, "<details><summary>"...), w.draw...), "</summary>\n<p>"...)
	b = strconv.AppendInt(append(append(b, w.number...), " <strong>"...), l.number, 10)
	b = append(append(append(b, "</strong></p>\n<p>"...), w.commitment...), " <code>"...)
	b = append(append(b, html.EscapeString(l.commitment)...), "</code></p>\n"...)
	if l.seed != "" {
		b = append(append(append(b, "<p>"...), w.drawn...), " <strong>"...)
		b = strconv.AppendInt(b, l.drawn, 10)
		b = append(append(append(b, "</strong></p>\n<p>"...), w.seed...), " <code>"...)
		b = append(append(b, html.EscapeString(l.seed)...), "</code></p>\n"...)
	}
	return append(b, "</details>\n"...)
}

// inLine reports whether the page is that of somebody who waits in line.
func (f *Refusal) inLine() bool {
	a := f.described()
	return a.Waits || a.PageStatus != 0 && f.RetryAfter() > 0
}

// lineWait is after how many seconds the page asks again.
func (f *Refusal) lineWait() int64 { return max(1, int64(f.RetryAfter()/time.Second)) }

// appendTime appends a duration of ISO 8601 in words.
func (w *lineWords) appendTime(b []byte, iso string) []byte {
	d, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(iso, "PT")))
	if err != nil {
		return b
	}
	first := true
	for _, part := range []struct {
		n         int64
		one, many string
	}{
		{int64(d / time.Hour), w.hour, w.hours},
		{int64(d % time.Hour / time.Minute), w.minute, w.minutes},
		{int64(d % time.Minute / time.Second), w.second, w.seconds},
	} {
		if part.n == 0 {
			continue
		}
		if !first {
			b = append(b, w.between...)
		}
		first = false
		b = strconv.AppendInt(b, part.n, 10)
		if part.n == 1 {
			b = append(b, part.one...)
		} else {
			b = append(b, part.many...)
		}
	}
	return b
}

// appendGrouped appends a number as people read it: 1,234,567.
func appendGrouped(b []byte, n int64) []byte {
	digits := strconv.FormatInt(n, 10)
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b = append(b, ',')
		}
		b = append(b, digits[i])
	}
	return b
}

// isPageView reports whether the request is one for a page that a person looks at.
func isPageView(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (mode == "" || mode == "navigate") &&
		negotiate(r.Header["Accept"]) == formPage
}

// form returns the form of the refusal's body.
func (f *Refusal) form(r *http.Request) form {
	form := negotiate(r.Header["Accept"])
	if form == formPage && f.described().PageStatus != 0 && !isPageView(r) {
		return formProblem
	}
	return form
}

// textIn returns the text of the page in the language that the client prefers. It is empty where that is
// English, or none of those that there are.
func textIn(pages []kit.PageText, accept []string) (text Text) {
	best := 0
	for _, line := range accept {
		for element := range strings.SplitSeq(line, ",") {
			tag, parameters, _ := strings.Cut(element, ";")
			primary, _, _ := strings.Cut(strings.TrimSpace(tag), "-")
			weight, ok := weightOf(parameters)
			if !ok || weight <= best {
				continue
			}
			if strings.EqualFold(primary, "en") {
				best, text = weight, Text{}
			}
			for _, p := range pages {
				if lang, _, _ := strings.Cut(p.Lang, "-"); strings.EqualFold(primary, lang) {
					best, text = weight, Text{Title: p.Title, Detail: p.Detail, Lang: p.Lang}
				}
			}
		}
	}
	return text
}

// langOf is the language of a page.
func langOf(text Text) string { return cmp.Or(text.Lang, "en") }
