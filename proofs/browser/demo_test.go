package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// buildDemo builds examples/demo, and returns the path of the program.
func buildDemo(t *testing.T) string {
	t.Helper()
	browser(t) // nothing to build for where there is none
	program := filepath.Join(t.TempDir(), "demo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/demo")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the demo: %v\n%s", err, out)
	}
	return program
}

var demoURL = regexp.MustCompile(`http://\S+/`)

// startDemo starts the program on a free port, and returns its URL. When the test ends, it asks the process
// to end, which has to end without an error.
func startDemo(t *testing.T, program string) string {
	t.Helper()
	demo := exec.Command(program)
	demo.Env = append(os.Environ(), "ADDR=127.0.0.1:0", "REDIS_URL=")
	var log bytes.Buffer
	demo.Stderr = &log
	out, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(20*time.Minute, func() { _ = demo.Process.Kill() }) // it hangs
	t.Cleanup(func() {
		_ = demo.Process.Signal(syscall.SIGTERM)
		if err := demo.Wait(); err != nil {
			t.Errorf("the demo ended: %v", err)
		}
		kill.Stop()
		if t.Failed() {
			t.Logf("the demo's log:\n%s", &log)
		}
	})
	lines := bufio.NewReader(out)
	first, _ := lines.ReadString('\n')
	address := demoURL.FindString(first)
	if address == "" {
		t.Fatalf("the first line of the demo's output has no URL: %q", first)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return address
}

// listen makes the page keep what the server says: said[name] has the event streams of the runs of a scenario
// that have ended.
const listen = `(()=>{
  window.said={};
  const ask=window.fetch;
  window.fetch=async(path,...rest)=>{
    const answer=await ask(path,...rest);
    if (path.startsWith("/scenarios/"))
      answer.clone().text().then(text=>(said[path.slice(11)]??=[]).push(text));
    return answer;
  };
  return true;
})()`

// openDemo opens a tab on the demo. Requests that fail and responses of 400 and up are faults, except those
// whose report in the console has one of the texts.
func openDemo(t *testing.T, v view, address string, intended ...string) *tab {
	t.Helper()
	b := open(t, v, address)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, failure := range b.failures {
			has := func(s string) bool { return strings.Contains(failure, s) }
			if !slices.ContainsFunc(intended, has) {
				t.Error(failure)
			}
		}
	})
	if !v.noJS {
		eval[bool](b, listen)
		eval[bool](b, `document.querySelector("#more").open=true`)
		b.eventually(`document.querySelector("#attack").dataset.state==="done"||` +
			`!!document.querySelector("#no-redis")`)
	}
	return b
}

// sees audits the page as it is now in each view.
func (b *tab) sees(views ...view) {
	b.Helper()
	for _, v := range views {
		b.look(v)
		b.audit(v)
	}
}

// play presses the button of a scenario, and waits until it is done. It returns the data of the last event.
func play[T any](b *tab, button, section, name string) T {
	b.Helper()
	before := b.runs(name)
	b.act(chromedp.Click("#" + button))
	return ended[T](b, section, name, before)
}

// runs is how many runs of a scenario have ended.
func (b *tab) runs(name string) int { return eval[int](b, fmt.Sprintf(`(said[%q]||[]).length`, name)) }

func ended[T any](b *tab, section, name string, before int) (data T) {
	b.Helper()
	b.eventually(fmt.Sprintf(`(said[%q]||[]).length>%d&&`+
		`/done|failed/.test(document.getElementById(%q).dataset.state)`, name, before, section))
	if state := b.state(section); state != "done" {
		b.Fatalf("%s: %s: %s", name, state, b.text("#"+section+"-status"))
	}
	text := eval[string](b, fmt.Sprintf(`said[%q].at(-1).trim().split("\n").at(-1)`, name))
	var last struct {
		Event string
		Data  *T
	}
	last.Data = &data
	if err := json.Unmarshal([]byte(text), &last); err != nil || last.Event != "done" {
		b.Fatalf("%s ends with %q: %v", name, text, err)
	}
	return data
}

func (b *tab) state(section string) string {
	b.Helper()
	return eval[string](b, fmt.Sprintf(`document.getElementById(%q).dataset.state`, section))
}

// shows fails the test for each figure below an element that is not that of the last event of a scenario.
func (b *tab) shows(element, name string) {
	b.Helper()
	wrong := eval[[]string](b, fmt.Sprintf(`(()=>{
  const {data}=JSON.parse(said[%q].at(-1).trim().split("\n").at(-1));
  const figures=[...document.querySelectorAll("#"+%q+" [data-figure]")];
  if (!figures.length) return ["no figures"];
  const plain=text=>String(text).replaceAll(",","");
  const want=e=>e.dataset.figure.split(".").reduce((d,key)=>d?.[key],data);
  return figures.filter(e=>plain(e.textContent)!==plain(want(e)))
    .map(e=>e.dataset.figure+" is "+e.textContent);
})()`, name, element))
	if len(wrong) > 0 {
		b.Errorf("#%s does not show what the server says: %q", element, wrong)
	}
}

// row is the figure of a row: 0 where there is none.
func (b *tab) row(table, key string) int {
	b.Helper()
	const cell = `+(document.querySelector('#%s tr[data-key="%s"] td')||{textContent:0}).textContent`
	return eval[int](b, fmt.Sprintf(cell, table, key))
}

// steps are the values of a figure in the steps of a scenario.
func (b *tab) steps(section, figure string) []string {
	b.Helper()
	const values = `[...document.querySelectorAll("#%s-steps li[data-%s]")].map(e=>e.dataset.%s)`
	return eval[[]string](b, fmt.Sprintf(values, section, figure, figure))
}

// besideEachOther is how many scenarios TestDemo plays at a time: most of the time they wait.
const besideEachOther = 4

// TestDemo plays each scenario of examples/demo on its page. make test plays the first two, and leaves the
// others to make all.
func TestDemo(t *testing.T) {
	program := buildDemo(t)
	// What is timed, and the crowd of 10,000, have the machine for themselves.
	first, second := startDemo(t, program), startDemo(t, program)
	t.Run("ThePageBeforeAnything", func(t *testing.T) { demoAtFirst(t, program, first) })
	if !redistest.All() {
		t.Run("AttackAndSale", func(t *testing.T) { demoAttackAndSale(t, second) })
		return
	}
	t.Run("ACrowdComes", func(t *testing.T) { demoRoom(t, second) })
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, besideEachOther)
	for _, c := range []struct {
		name string
		test func(t *testing.T, address string)
	}{
		{"OneUserFloods", demoTree},
		{"RedisGoesAndComesBack", demoOutage},
		{"AttackAndSale", demoAttackAndSale},
		{"PollLimitWorkersAndSpending", demoSmallScenarios},
		{"ByHandWithTheKeyboard", demoByHand},
		{"ResetEndsRuns", demoReset},
		{"TheSecondTab", demoSecondTab},
		{"WithoutScripts", demoWithoutScripts},
	} {
		// They end together: the server waits five seconds for connections that Chromium has opened in advance.
		address := startDemo(t, program)
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			t.Run(c.name, func(t *testing.T) { c.test(t, address) })
		})
	}
}

// figure is the selector of a figure in a part of the page.
func figure(part, name string) string { return fmt.Sprintf(`#%s [data-figure='%s']`, part, name) }

// number is the expression of its value.
func number(part, name string) string {
	return fmt.Sprintf(`+document.querySelector(%q).innerText.replaceAll(",","")`, figure(part, name))
}

// asAtTheStart is true on a page that was reset: no scenario has run, except for the attack that starts by itself.
const asAtTheStart = `document.readyState==="complete"&&` +
	`document.querySelectorAll('[data-state]:not([data-state="idle"],#attack)').length===0`

// demoSecondTab: what one tab starts, the other shows; and a tab that is opened later starts nothing.
func demoSecondTab(t *testing.T, address string) {
	first := openDemo(t, views[2], address)
	second := openDemo(t, views[2], address)
	for _, id := range []string{"#attack-naive-worst", "#attack-bucket-worst", "#attack-sliding-worst"} {
		if a, b := first.text(id), second.text(id); a != b {
			t.Errorf("%s is %s in one tab and %s in the other", id, a, b)
		}
	}
	play[raceDone](first, "race-run", "race", "sale")
	second.eventually(`document.querySelector("#race").dataset.state==="done"`)
	if a, b := first.text("#race-naive-sold"), second.text("#race-naive-sold"); a != b {
		t.Errorf("the naive sale has sold %s in one tab and %s in the other", a, b)
	}
	first.act(chromedp.Click("#reset"))
	second.eventually(asAtTheStart)
}

func demoAtFirst(t *testing.T, program, address string) {
	b := openDemo(t, views[0], address)
	b.sees(views...)
	if got := eval[int](b, `document.querySelectorAll('[data-state="idle"]').length`); got != 11 {
		t.Errorf("%d scenarios are idle, want all but the attack, which starts by itself", got)
	}
	const began = `performance.getEntriesByType("resource")` +
		`.find(e=>e.name.endsWith("/scenarios/attack"))?.startTime??1e9`
	for try, first := 1, b; ; try++ {
		first.eventually(`(` + began + `)<1e9`)
		ms := eval[float64](first, began)
		if ms <= 2000 {
			break
		}
		if try == 5 { // a busy machine may delay some
			t.Fatalf("the attack began %.0f ms after the page was opened, want 2000 at most", ms)
		}
		first = openDemo(t, views[0], startDemo(t, program))
	}
	b.look(views[2])
	b.act(chromedp.Click("#race-same")) // before there are orders
	b.eventually(`document.querySelector("#race").dataset.state==="failed"`)
	if got := b.text("#race-status"); !strings.Contains(got, "run the sale first") {
		t.Errorf("no orders: %q", got)
	}
}

// attackCounts has the requests of each limit that are new since the last look.
type attackCounts struct {
	Lanes map[string]struct {
		Admitted, Refused []float64
		Worst             int
	}
}

type raceDone struct {
	Sale    struct{ Stock, Left, Held, Sold int }
	Answers map[string]int
	Naive   struct{ Left, Sold, Oversold, Refused int }
	Buyers  int
}

func demoAttackAndSale(t *testing.T, address string) {
	b := openDemo(t, views[2], address)
	b.attack()
	b.sale()
	b.sees(views...)
}

// attack repeats the attack while the machine is too slow for the burst: then the naive window has not been
// attacked.
func (b *tab) attack() {
	b.Helper()
	for try := 1; ; try++ {
		result := play[attackCounts](b, "attack-run", "attack", "attack")
		sent, worst := map[string]int{}, map[string]int{}
		for _, data := range eval[[]string](b, `said.attack.at(-1).trim().split("\n")`) {
			var line struct{ Data attackCounts }
			if err := json.Unmarshal([]byte(data), &line); err != nil {
				b.Fatalf("%s: %v", data, err)
			}
			for name, l := range line.Data.Lanes {
				sent[name] += len(l.Admitted) + len(l.Refused)
			}
		}
		for name, l := range result.Lanes {
			worst[name] = l.Worst
			lane := "#attack-" + name
			dots := eval[int](b, fmt.Sprintf(`document.querySelectorAll("%s :is(.admitted,.refused)").length`, lane))
			colour := eval[string](b, fmt.Sprintf(`document.querySelector("%s-worst").className`, lane))
			if b.text(lane+"-worst") != itoa(l.Worst) || dots != sent[name] ||
				(colour == "over") != (name == "naive" && l.Worst > 100) {
				b.Errorf("%s: %d at most in a window, %d requests; shown as %s (%s) with %d dots", name, l.Worst,
					sent[name], b.text(lane+"-worst"), colour, dots)
			}
		}
		if worst["sliding"] > 100 || worst["sliding"] == 0 || worst["bucket"] > 200 {
			b.Fatalf("most admitted in a window: %v, want up to 100 by the sliding one", worst)
		}
		if worst["naive"] > 100 {
			return
		}
		if try == 5 {
			b.Fatalf("most admitted in a window: %v: the attacker was too slow, and proved nothing", worst)
		}
	}
}

func (b *tab) sale() {
	b.Helper()
	// While it runs, too, each ticket is left, held or sold: sums has what was shown.
	eval[bool](b, `(()=>{
  window.sums=new Set();
  const figure=name=>+document.querySelector("#race-own [data-figure='sale."+name+"']").textContent;
  new MutationObserver(()=>sums.add(figure("left")+figure("held")+figure("sold")))
    .observe(document.getElementById("race-own"),{subtree:true,childList:true});
  return true;
})()`)
	c := play[raceDone](b, "race-run", "race", "sale")
	if got := eval[[]int](b, `[...sums]`); !slices.Equal(got, []int{100}) {
		b.Errorf("left + held + sold was %d, want always 100", got)
	}
	b.shows("race-own", "sale")
	b.shows("race-naive", "sale")
	if c.Sale.Stock != 100 || c.Sale.Sold != 100 || c.Sale.Left != 0 || b.row("race-answers", "ok") != 100 ||
		b.row("race-answers", "sold_out") != c.Buyers-100 {
		b.Errorf("%+v, want 100 tickets to be sold", c)
	}
	if n := c.Naive; n.Sold+n.Refused != c.Buyers || n.Left != 100-n.Sold || n.Oversold != n.Sold-100 ||
		n.Sold < 100 {
		b.Errorf("naive: %+v, want each order counted", n)
	}

	again := play[raceDone](b, "race-same", "race", "sale-same")
	b.shows("race-own", "sale-same")
	if again.Sale != c.Sale || again.Naive != c.Naive || b.row("race-answers", "replayed") != 100 ||
		b.row("race-answers", "ok") != 0 || !strings.Contains(b.text("#race-status"), "100 replays") ||
		!strings.Contains(b.text("#race-status"), " 0 newly sold") {
		b.Errorf("the same orders again: %+v, %q; want 100 replays", again, b.text("#race-status"))
	}
}

var allRight = regexp.MustCompile(
	`the seed is the one that was promised, and ([\d,]+) of ([\d,]+) positions are right\.`)

// demoRoom: the places inside are taken and never more, half of those who wait leave, each browser checks the
// draw by itself, and the others are told that it is over.
func demoRoom(t *testing.T, address string) {
	b := openDemo(t, views[2], address)
	if got := b.text("#room-check"); !strings.Contains(got, "This browser") {
		t.Errorf("before the draw: %q", got)
	}
	b.act(chromedp.Click("#room-run"))
	b.eventually(`document.querySelector("#room-leave").getAttribute("aria-disabled")==="false"`)
	second := openDemo(t, views[0], address)
	b.act(chromedp.Click("#room-leave"))
	b.eventually(number("room", "left") + `>0`)
	b.sees(views...) // while it runs
	c := ended[struct {
		State                              string
		Most, Entered, Left, Told, Waiting int
	}](b, "room", "room", 0)
	b.shows("room", "room")
	if c.State != "closed" || c.Most != 400 || c.Entered < 400 || c.Left < 3000 || c.Waiting != 0 ||
		c.Told+c.Left+c.Entered != 10_000 {
		t.Errorf("%+v", c)
	}
	const highest = `Math.min(...[...document.querySelectorAll("#room-inside-bars :is(.sold,.called)")]` +
		`.map(e=>+e.getAttribute("y")))`
	if top := eval[float64](b, highest); top < 24-.01 || top > 24+.01 {
		t.Errorf("the highest column ends at %v, the line of the capacity is at 24", top)
	}
	for _, tab := range []*tab{b, second} {
		tab.eventually(`document.querySelector("#room").dataset.state==="done"`)
		got := tab.text("#room-check") // those who come late, as on a busy machine, are not drawn
		if right := allRight.FindStringSubmatch(got); right == nil || right[1] != right[2] || len(right[1]) < 5 {
			t.Errorf("the draw: %q", got)
		}
	}
	if a, b := b.text("#room-seed"), second.text("#room-seed"); a != b || len(a) != 64 {
		t.Errorf("the seed is %q in one tab, %q in the other", a, b)
	}
	b.sees(views...)
	// A check that finds nothing would be none.
	eval[bool](b, `(checkDraw({commitment:"another",seed:"5eed",positions:[2,2,9,9]}),true)`)
	b.eventually(`/is not the one that was promised, and [01] of 4 /.test(document.querySelector("#room-check.bad")` +
		`?.textContent)`)
	b.act(chromedp.Click("#reset"))
	b.eventually(asAtTheStart)
	if got := b.text(figure("room", "commitment")) + b.text("#room-seed"); got != "––" ||
		!strings.Contains(b.text("#room-check"), "This browser") {
		t.Errorf("after a reset: %q", got)
	}
}

// demoTree: who floods is refused by their own limit, and nobody else is. What support decides is obeyed and
// shown, ends by itself, and has a way back. Where all flood, the organisation's limit binds.
func demoTree(t *testing.T, address string) {
	b := openDemo(t, views[2], address)
	row := func(name string) string { return `document.querySelector("#budgets-` + name + `")` }
	b.act(chromedp.Click("#budgets-run"))
	b.eventually(row("ann") + `.dataset.hit==="user"&&` + number("budgets", "refused") + `>10`)
	second := openDemo(t, views[0], address)
	others := func() {
		t.Helper()
		const hit = `[...document.querySelectorAll("#budgets-tree tr[id]")].filter(e=>e.dataset.hit).map(e=>e.id)`
		if n, hits := b.text("#budgets-others"), eval[[]string](b, hit); n != "0" ||
			slices.ContainsFunc(hits, func(id string) bool { return id != "budgets-ann" }) {
			t.Errorf("%s requests of others are refused, by %q", n, hits)
		}
	}
	others()
	b.eventually(fmt.Sprintf(`(window.told=document.querySelector(%q).innerText).startsWith("429")`,
		figure("budgets", "answer"))) // some of Ann's requests are allowed
	answer := eval[string](b, "told")
	for _, part := range []string{"429 Too Many Requests", `"api/org";r=`, `"api/team";r=`, `"api/user";r=0`,
		"Retry-After: ", "budget.Binding: user"} {
		if !strings.Contains(answer, part) {
			t.Errorf("Ann is told %q, which has no %q", answer, part)
		}
	}
	b.sees(views...) // while it runs
	b.look(views[2])

	raised := func(b *tab, yes bool) {
		most := map[bool]string{false: "15", true: "20"}[yes]
		b.eventually(row("ann") + `.innerText.includes("of ` + most + `")&&` +
			`document.querySelector("#budgets-decided").innerText` + fmt.Sprintf(`.startsWith("ann has more")===%t&&`, yes) +
			fmt.Sprintf(`document.querySelector("#budgets-raise").getAttribute("aria-pressed")==="%t"`, yes))
	}
	b.act(chromedp.Click("#budgets-raise"))
	raised(b, true)
	raised(second, true)
	b.eventually(`+` + row("ann") + `.dataset.used>15`)
	others()
	raised(b, false) // by itself
	b.act(chromedp.Click("#budgets-raise"))
	raised(b, true)
	b.act(chromedp.Click("#budgets-raise"))
	raised(b, false)

	b.act(chromedp.Click("#budgets-pause"))
	b.eventually(row("web") + `.dataset.hit==="paused"&&` + row("bob") + `.dataset.hit==="paused"`)
	if got := eval[string](b, row("data")+`.dataset.hit+`+row("cid")+`.dataset.hit`); got != "" {
		t.Errorf("the other team is refused: %s", got)
	}
	b.act(chromedp.Click("#budgets-pause"))
	b.eventually(`document.querySelector("#budgets-pause").getAttribute("aria-pressed")==="false"`)
	b.act(chromedp.Click("#budgets-all"))
	b.eventually(row("acme") + `.dataset.hit==="org"`)
	b.sees(views[0], views[3])
	b.look(views[2])
	ended[struct{}](b, "budgets", "budgets", 0)
	b.shows("budgets", "budgets")
	if streamed := eval[string](b, `said.budgets[0]`); regexp.MustCompile(`"acme":{"used":(5[1-9]|[6-9]\d)`).
		MatchString(streamed) {
		t.Errorf("the organisation had more than 50:\n%s", streamed)
	}
	b.act(chromedp.Click("#reset"))
	b.eventually(asAtTheStart + `&&` + row("ann") +
		`.innerText.includes("0 of 15")`)
}

func demoSmallScenarios(t *testing.T, address string) {
	b := openDemo(t, views[2], address)
	// These wait for leases, so they run beside each other. A browser has six connections to a server.
	together := []string{"holds", "semaphore", "lock", "delay"}
	for _, name := range together {
		b.act(chromedp.Click("#" + name + "-run"))
	}
	for _, name := range together {
		ended[struct{}](b, name, name, 0)
	}
	play[struct{}](b, "spend-run", "spend", "spend")
	for _, c := range []struct {
		section, figure string
		want            string // of all values
	}{
		{"holds", "left", `^10 6 10$`},
		{"holds", "held", `^0 4 0$`},
		{"holds", "sold", `^0 0 0$`},
		{"semaphore", "held", `^2 2 2 [12]$`},
		{"semaphore", "max", `^2 2 2 2$`},
		{"lock", "fence", `^(\d+) \d+ \d+$`},
		{"delay", "delivery", `^1 2$`},
		{"spend", "left", `^100 60 80 40 10 10$`},
	} {
		if got := strings.Join(b.steps(c.section, c.figure), " "); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%s %s: %s, want %s", c.section, c.figure, got, c.want)
		}
	}
	if fences := b.steps("lock", "fence"); fences[0] != fences[2] || fences[0] == fences[1] {
		t.Errorf("fences %v, want the second to differ", fences)
	}
	b.stuffing()
	b.limit()
	eval[bool](b, openForms)
	b.sees(views...)
}

func (b *tab) stuffing() {
	b.Helper()
	type side struct {
		Tally    map[string]int
		Attacker map[string]int
		Refused  int
	}
	c := play[struct{ Open, Capped side }](b, "stuffing-run", "stuffing", "poll")
	b.shows("stuffing", "poll")
	if c.Open.Tally["red"] != 600 || c.Open.Tally["blue"] != 240 {
		b.Errorf("caps off: %v, want a vote per account", c.Open.Tally)
	}
	if red := c.Capped.Tally["red"]; red > 200 || red < 50 || c.Capped.Tally["blue"] != 240 ||
		c.Capped.Refused != 0 {
		b.Errorf("caps on: %+v, want at most 4 votes per address of the attacker", c.Capped)
	}
	if got, want := b.text("#stuffing-open-answers"), "600 × 201"; !strings.Contains(got, want) {
		b.Errorf("answers to the attacker: %q, want %q", got, want)
	}
	for side, want := range map[string]string{"open": "The attacker wins, 600 to 240.",
		"capped": "The people win, 240 to " + itoa(c.Capped.Tally["red"]) + "."} {
		if got := b.text("#stuffing-" + side + "-winner"); got != want {
			b.Errorf("the poll: %q, want %q", got, want)
		}
	}
}

// limit presses the button until it is refused.
func (b *tab) limit() {
	b.Helper()
	press := func() string {
		b.act(chromedp.Click("#limit-run"))
		b.eventually(`/done|failed/.test(document.querySelector("#limit").dataset.state)`)
		return b.text("#limit-status")
	}
	first := press()
	scripts := eval[[]string](b,
		`[...document.querySelectorAll("#limit-calls [data-script]")].map(e=>e.dataset.script)`)
	if first != "200 OK" || !slices.Contains(scripts, "lua/limit/sliding_window.lua") ||
		!strings.Contains(b.text("#limit-fields"), "4 requests are left") {
		b.Errorf("the first request: %s, %v, %s", first, scripts, b.text("#limit-fields"))
	}
	status := first
	for i := 0; status == "200 OK" && i < 1000; i++ { // a machine that stalls may need more than 6
		status = press()
	}
	if status != "429 Too Many Requests" || !strings.Contains(b.text("#limit-fields"), "Retry-After: ") {
		b.Errorf("refused: %s, %s", status, b.text("#limit-fields"))
	}
}

// demoByHand uses the keyboard alone.
func demoByHand(t *testing.T, address string) {
	b := openDemo(t, views[2], address, "status of 409") // a second vote
	const focus = `document.activeElement`
	tabTo := func(id string) {
		t.Helper()
		for range 200 {
			b.act(chromedp.KeyEvent(kb.Tab))
			if eval[bool](b, focus+`.id===`+fmt.Sprintf("%q", id)) {
				return
			}
		}
		t.Fatalf("the Tab key does not lead to #%s", id)
	}
	b.act(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter)) // the link that skips the header
	b.act(chromedp.KeyEvent(kb.Tab))
	if got := eval[string](b, focus+`.id`); got != "attack-run" {
		t.Errorf("behind the header: %q", got)
	}
	tabTo("limit-run")
	b.act(chromedp.KeyEvent(kb.Enter))
	b.eventually(`document.querySelector("#limit").dataset.state==="done"`)
	tabTo("spend-run")
	b.act(chromedp.KeyEvent(" "))
	ended[struct{}](b, "spend", "spend", 0)
	if got := eval[string](b, focus+`.id`); got != "spend-run" {
		t.Errorf("after a run the focus is on %q", got)
	}

	tabTo("user")
	b.act(chromedp.KeyEvent("x"))
	name := eval[string](b, focus+`.value`)
	answer := func(begins string, press func()) string {
		t.Helper()
		eval[bool](b, `(document.querySelector("#answers").textContent="",true)`)
		press()
		b.eventually(`document.querySelector("#answers").textContent!==""`)
		got := b.text("#answers")
		_, status, _ := strings.Cut(got, "\n")
		if !strings.HasPrefix(status, begins) {
			t.Errorf("want %s:\n%s", begins, got)
		}
		return got
	}
	enter := func() { b.act(chromedp.KeyEvent(kb.Enter)) }
	tabTo("hello")
	if got := answer("200", enter); !strings.Contains(got, "RateLimit: ") {
		t.Errorf("hello:\n%s", got)
	}
	b.act(chromedp.KeyEvent(kb.Tab))
	if got := answer("201", enter); !strings.Contains(got, `"choice":"red","poll":"final","user":"`+name+`"`) {
		t.Errorf("a vote of %s:\n%s", name, got)
	}
	answer("409", enter)
	b.eventually(number("hand", "tally.red") + `===1`)
	if got := get(t, address+"polls/final"); !strings.Contains(got, `"red":1`) {
		t.Errorf("the tally is %s", got)
	}
	tabTo("buy")
	answer("201", enter)
	if got := answer("201", enter); !strings.Contains(got, "This is a replay") {
		t.Errorf("the same order again:\n%s", got)
	}
	b.eventually(number("hand", "sale.sold") + `===1`)
	if got := get(t, address+"sales/ticket"); !strings.Contains(got, `"left":99,"held":0,"sold":1`) {
		t.Errorf("the sale is %s", got)
	}
	tabTo("export")
	answer("200", func() {
		enter()
		b.eventually(number("hand", "running") + `===1`)
	})
	b.eventually(number("hand", "running") + `===0`)
	b.sees(views...)
}

func get(t *testing.T, address string) string {
	t.Helper()
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// demoWithoutScripts: only the forms are there, and they work.
func demoWithoutScripts(t *testing.T, address string) {
	// The bare answer to a form names no icon, so Chromium asks for one.
	b := openDemo(t, view{width: 390, noJS: true}, address, "/favicon.ico")
	if shown := eval[bool](b, `document.querySelector("#attack").checkVisibility()`); shown {
		t.Error("a scenario is shown that cannot run")
	}
	b.audit(view{width: 390})
	b.follow(chromedp.Click(`button[value="red"]`))
	if got := b.text("body"); !strings.Contains(got, `"choice":"red","poll":"final","user":"alice"`) {
		t.Errorf("a vote: %q", got)
	}
}

// demoOutage takes Redis away with the switch, and gives it back.
func demoOutage(t *testing.T, address string) {
	b := openDemo(t, views[2], address)
	// traffic waits for a condition, and sends more when the traffic has ended before.
	traffic := func(condition string) {
		t.Helper()
		redistest.Eventually(t, patience, func() bool {
			if eval[bool](b, condition) {
				return true
			}
			if b.state("outage") != "running" {
				b.act(chromedp.Click("#outage-run"))
			}
			return false
		}, condition)
	}
	const (
		flip    = `document.querySelector("#redis-switch").getAttribute("aria-checked")===`
		breaker = `&&document.querySelector("#breaker-state").innerText===`
		limit   = `&&document.querySelector('#outage-limit tr[data-key^="`
		sale    = `&&document.querySelector('#outage-sale tr[data-key="`
	)
	b.eventually(flip + `"true"`)
	b.act(chromedp.Click("#redis-switch"))
	b.eventually(flip + `"false"`)
	traffic(flip + `"false"` + breaker + `"open"` + limit + `local"]')!==null` + sale + `503"]')!==null`)
	if b.row("outage-sale", "200") != 0 || b.text("#redis-state") != "Redis is away." {
		t.Errorf("Redis is away: %s, %s", b.text("#redis-state"), b.text("#outage-sale"))
	}
	b.eventually(number("outage", "alone") + `>0`) // while it is open
	b.sees(views[0], views[3])

	// The page itself answers 503, and says why. It is whole again by itself.
	other := openDemo(t, views[2], address, "status of 503")
	if !eval[bool](other, `document.querySelector("#no-redis").checkVisibility()`) {
		t.Error("the page does not say that Redis is away")
	}
	other.sees(views...)

	b.look(views[2])
	b.act(chromedp.Click("#redis-switch"))
	b.eventually(flip + `"true"`)
	traffic(flip + `"true"` + breaker + `"closed"` + limit + `redis"]')!==null` + sale + `200"]')!==null`)
	other.eventually(`!document.querySelector("#no-redis")`)
	b.sees(views[1], views[2])

	b.eventually(`document.querySelector("#outage").dataset.state!=="running"`)
	b.act(chromedp.Click("#outage-story"))
	b.eventually(`document.querySelector("#outage").dataset.state==="running"`)
	b.eventually(`document.querySelector("#outage").dataset.state==="done"`)
	for _, phase := range []string{"with", "lost", "alone"} { // Redis answers, is away, and is not asked
		if !eval[bool](b, `document.querySelector("#outage-line .`+phase+`")!==null`) {
			t.Errorf("the line does not show the phase %q", phase)
		}
	}
}

// demoReset resets while traffic runs: the run ends, and the page is as at the start.
func demoReset(t *testing.T, address string) {
	b := openDemo(t, views[2], address)
	play[struct{}](b, "spend-run", "spend", "spend")
	b.act(chromedp.Click("#outage-run"))
	b.eventually(`document.querySelector("#outage-limit tr")!==null`)
	b.act(chromedp.Click("#reset"))
	b.eventually(asAtTheStart)
	if got := eval[int](b, `document.querySelectorAll("#spend-steps li, #outage-limit tr").length`); got != 0 {
		t.Errorf("after a reset there are %d results", got)
	}
	b.eventually(`document.querySelector("#attack").dataset.state==="done"`)
	b.sees(views[0])
}
