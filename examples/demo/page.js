"use strict";
// The page shows what the server measured: it counts nothing itself. Without this script the buttons under
// "By hand" submit their form, and the browser shows the bare answer.

const byID = id => document.getElementById(id);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
document.documentElement.classList.add("scripted");
const sizes = Object.fromEntries(Object.entries(byID("main").dataset).map(([name, value]) => [name, +value]));
const people = n => n.toLocaleString("en");

// say writes into an element what it does not say yet: what changes is read aloud.
function say(id, content, className) {
  const e = byID(id);
  if (e.textContent !== content) e.textContent = content;
  if (className !== undefined) e.className = className;
}

// element makes an element with others or texts in it, never HTML.
function element(tag, ...children) {
  const e = document.createElement(tag);
  e.append(...children);
  return e;
}

// shape adds an SVG element to an svg, in the namespace of that svg.
function shape(svg, tag, attributes, content = "") {
  const e = document.createElementNS(svg.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.textContent = content;
  svg.append(e);
  return e;
}

// fill writes figures into the elements that name them: data-figure="sale.left".
function fill(root, data) {
  for (const e of all("[data-figure]", root)) {
    const value = e.dataset.figure.split(".").reduce((d, key) => d?.[key], data);
    if (value === undefined || value === null) continue;
    e.textContent = Number.isInteger(value) ? people(value) : value;
  }
}

// rows writes a table with a row for each entry.
function rows(table, entries, name = key => key) {
  table.replaceChildren(...Object.entries(entries).map(([key, value]) => {
    const row = element("tr", element("th", name(key)), element("td", value));
    row.firstChild.scope = "row";
    row.dataset.key = key;
    return row;
  }));
}

// Requests.

async function ask(path, options) {
  const answer = await fetch(path, options).catch(() => null);
  if (answer?.ok) return answer;
  throw new Error(answer ? (await answer.text()).trim() : "The server did not answer.");
}

// events reads the lines of an answer while they come.
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

// known has the name of the last run of each scenario that this page has shown.
const known = {};

// play starts a scenario, or joins its run: tabs see the same. With watch it only watches the last run. The
// section has the state in data-state: idle, running, done or failed.
async function play(button, watch) {
  const name = button.dataset.run;
  const section = button.closest("[data-state]");
  if (section.dataset.state === "running") return;
  const show = (shows[name] ?? showSteps)(section.id);
  const status = section.id + "-status";
  const buttons = all("[data-run]", section);
  for (const b of buttons) b.setAttribute("aria-disabled", "true");
  section.dataset.state = "running";
  say(status, "Running …");
  try {
    const answer = await ask("/scenarios/" + name, { method: watch ? "GET" : "POST" });
    known[name] = answer.headers.get("Run");
    let last = "";
    for await (const { event, data } of events(answer)) {
      if (event === "failed") throw new Error(data.error);
      const said = show(data, last = event);
      if (said) say(status, said);
    }
    if (last !== "done") throw new Error("The server ended this before it was done.");
    section.dataset.state = "done";
  } catch (error) {
    section.dataset.state = "failed";
    say(status, error.message);
  }
  for (const b of buttons) b.removeAttribute("aria-disabled");
  for (const b of all("[data-during]", section)) b.setAttribute("aria-disabled", "true");
}

// watch shows the state, what other tabs have started, and that one of them has reset the demo. The first page
// that sees an untouched demo starts the attack.
let since = "";
async function watch() {
  const before = { ...known };
  const state = await ask("/state").then(answer => answer.json()).catch(() => null);
  setTimeout(watch, 500);
  if (!state) return;
  if (!since && state.up && !state.runs.attack) play(byID("attack-run"));
  since ||= state.since;
  if (since !== state.since) return location.reload();
  showState(state);
  for (const button of all("[data-run]")) {
    const name = button.dataset.run, run = state.runs[name];
    if (run && known[name] !== run && known[name] === before[name]) play(button, true);
  }
}

function showState(state) {
  if (state.now) fill(byID("hand"), state.now);
  fill(byID("outage"), { breaker: state.breaker });
  if (state.up) byID("no-redis")?.remove();
  byID("redis-switch")?.setAttribute("aria-checked", state.up);
  if (byID("redis-switch")) say("redis-state", state.up ? "Redis is there." : "Redis is away.");
}

// The attack: each request is a tick on its pile, those let in above the line, the others below.

const length = sizes.window * 2.5; // of the attack, in ms
const across = ms => 360 * ms / length;
const axis = 126; // y of the time line
const bin = 100; // ms of a pile

function drawLane(lane) {
  const svg = lane.querySelector("svg");
  svg.replaceChildren();
  lane.piles = {};
  lane.worst = shape(svg, "g", {});
  shape(svg, "line", { x1: 0, x2: 360, y1: axis, y2: axis, class: "axis" });
  for (let ms = 0; ms < length; ms += 1000) {
    shape(svg, "line", { x1: across(ms), x2: across(ms), y1: axis, y2: axis + 5, class: "axis" });
    shape(svg, "text", { x: across(ms) + 3, y: 156 }, ms / 1000 + " s");
  }
  const burst = across(sizes.window * .9);
  shape(svg, "rect", { x: burst, y: 28, width: 14, height: axis - 28, class: "plan" });
  shape(svg, "text", { x: burst + 22, y: 42, class: "plan-text" }, "here comes the burst");
}

function drawRequest(lane, ms, kind) {
  const start = Math.floor(ms / bin) * bin;
  const pile = lane.piles[kind + start] = (lane.piles[kind + start] ?? -1) + 1;
  const at = kind === "admitted" ? { y: axis - 1.5 - Math.min(pile, 100), height: 1.6 }
    : { y: axis + 3 + Math.min(pile * 4, 8), height: 2.5 };
  shape(lane.querySelector("svg"), "rect", { x: across(start), width: across(bin) - .6, class: kind, ...at });
}

// drawWorst marks the window in which the most were let in.
function drawWorst(lane, { worst, from_ms }) {
  const x = across(from_ms), width = across(sizes.window);
  lane.worst.replaceChildren();
  shape(lane.worst, "rect", { x, y: 18, width, height: axis - 18, class: "box" });
  shape(lane.worst, "path", { d: `M${x + .8} 24V18H${x + width - .8}V24`, class: "bracket" });
  const label = `${worst} within ${sizes.window / 1000} s`;
  shape(lane.worst, "text", { x: x + width / 2, y: 12, class: "label" }, label);
  say(lane.id + "-worst", String(worst),
    lane.id === "attack-bucket" ? "" : worst > sizes.limit ? "over" : "kept");
}

const results = {
  naive: worst => worst > sizes.limit
    ? `${worst - sizes.limit} too many: the counter started again during the burst.`
    : "This machine was too slow for the burst: attack again.",
  bucket: () => "By design: its burst, and what was refilled meanwhile.",
  sliding: () => `Never more than ${sizes.limit}, wherever the window begins.`,
};

function showAttack({ lanes }, event) {
  for (const [id, counts] of Object.entries(lanes)) {
    const lane = byID("attack-" + id);
    if (counts.worst > 1) for (const e of all(".plan, .plan-text", lane)) e.remove();
    for (const kind of ["admitted", "refused"]) for (const ms of counts[kind]) drawRequest(lane, ms, kind);
    if (counts.worst > 0) drawWorst(lane, counts);
    if (event === "done") say(lane.id + "-result", results[id](counts.worst));
  }
  const { naive, bucket, sliding } = lanes;
  return event === "done" && `Most let in within ${sizes.window / 1000} s: naive ${naive.worst}, ` +
    `token bucket ${bucket.worst}, sliding window ${sliding.worst}.`;
}

// The sale. Answers to orders that were sent before are replays: nothing is sold for them.

const reasons = {
  ok: "sold, in this run", replayed: "replay of an order that was sold before", sold_out: "sold out",
  in_progress: "the same order is in progress", duplicate: "one ticket per buyer",
};

// tickets draws all tickets, and those that were sold beyond.
function tickets(svg, { sold = 0, held = 0, over = 0 }) {
  const kind = i => i < sold ? "sold" : i < sold + held ? "held" : i < sizes.stock ? "left" : "beyond";
  svg.replaceChildren();
  for (let i = 0; i < sizes.stock + Math.min(over, 40); i++) {
    shape(svg, "rect", { x: i % 20 * 20 + 1, y: Math.floor(i / 20) * 20 + 2, width: 18, height: 15, rx: 3,
      class: kind(i) });
  }
}

function showSales(data) {
  const { sold, oversold } = data.naive;
  fill(byID("race"), data);
  rows(byID("race-answers"), data.answers, reason => reasons[reason] ?? reason);
  tickets(byID("race-own-grid"), data.sale);
  tickets(byID("race-naive-grid"), { sold: sold - oversold, over: oversold });
  byID("race-own-sold").className = "kept";
  byID("race-naive-sold").className = oversold > 0 ? "over" : "";
  const beyond = oversold > 0 ? `Orders for tickets that do not exist: ${oversold}.` : "Not oversold so far.";
  if (sold > 0) say("race-naive-text", beyond);
}

function showRace(data, event) {
  const { sale, naive } = data;
  showSales(data);
  return event === "done" && `Gatehouse sold ${sale.sold} of ${sale.stock}, the naive sale ${naive.sold}. ` +
    (naive.oversold > 0 ? `Its orders without a ticket: ${naive.oversold}.`
      : "This time the naive sale was lucky: try again.");
}

function showSameOrders(data) {
  const { sale, buyers, answers: { replayed = 0, sold_out = 0, ok = 0 } } = data;
  showSales(data);
  return `The same ${buyers} orders again: ${replayed} replays of orders that were sold before, ` +
    `${sold_out} sold out, ${ok} newly sold. Sold in all: ${sale.sold} of ${sale.stock}.`;
}

// The waiting room: a column for each look of the server. The capacity is a line.

const chart = { base: 108, high: 84 };
const along = ms => 400 * ms / sizes.room;
const aboutTheDraw = byID("room-check").textContent;

function drawRoom() {
  say("room-check", aboutTheDraw, "");
  say("room-seed", "–");
  const tops = { inside: sizes.capacity + ": the capacity", line: people(sizes.visitors) + " visitors" };
  for (const [id, top] of Object.entries(tops)) {
    const svg = byID(`room-${id}-bars`);
    const y = chart.base - chart.high, opens = along(sizes.lobby);
    svg.replaceChildren();
    shape(svg, "text", { x: 0, y: y - 8 }, top);
    shape(svg, "path", { d: `M0 ${y - .8}H400`, class: id === "inside" ? "bracket" : "plan" });
    shape(svg, "line", { x1: 0, x2: 400, y1: chart.base, y2: chart.base, class: "axis" });
    shape(svg, "path", { d: `M${opens} ${y + 16}V${chart.base}`, class: "plan" });
    shape(svg, "text", { x: opens + 6, y: y + 28, class: "plan-text" }, "it opens");
  }
}

function column(id, ms, n, of, below, kind) {
  const at = share => chart.high * share / of;
  const x = Math.min(along(ms), 400 - along(250)); // a slow machine may take longer
  shape(byID(`room-${id}-bars`), "rect", { x, y: chart.base - at(below + n), width: along(250) + .1,
    height: at(n), class: kind });
}

function showRoom(data, event) {
  if (event === "draw") return void checkDraw(data);
  fill(byID("room"), data);
  column("inside", data.ms, data.inside, sizes.capacity, 0, "sold");
  column("inside", data.ms, data.called, sizes.capacity, data.inside, "called");
  column("line", data.ms, data.waiting, sizes.visitors, 0, "refused");
  byID("room-inside").className = data.most > sizes.capacity ? "over" : "kept";
  const doors = event !== "done" && data.state === "open";
  if (doors) for (const e of all("#room .plan-text")) e.remove();
  byID("room-leave").setAttribute("aria-disabled", !doors || data.left > 0);
  if (event === "done") {
    return `Never more than ${data.most} at a time. ${people(data.entered)} were inside, ` +
      `${people(data.left)} had left, ${people(data.told)} were told “sold out” as they asked next.`;
  }
  return {
    lobby: "It is not open yet: all who come wait.",
    paused: "It opens: all say that they are still here, and their order is drawn.",
    open: data.left > 0 ? `${people(data.left)} have left, and hold up nobody.`
      : "They come in, in the order of the draw.",
    closed: "Sold out: all who wait are told when they ask next.",
  }[data.state];
}

// checkDraw computes the order by itself: the numbers are sorted by the SHA-256 of "seed:number".
async function checkDraw({ commitment, seed, positions }) {
  say("room-seed", seed);
  if (!crypto.subtle) return say("room-check", "Browsers compute this on localhost and by HTTPS only.", "bad");
  const bytes = new TextEncoder();
  const hash = async text => [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes.encode(text)))]
    .map(byte => byte.toString(16).padStart(2, "0")).join("");
  const keys = await Promise.all(positions.map((_, number) => hash(seed + ":" + number)));
  const order = [...keys.keys()].sort((a, b) => keys[a] < keys[b] ? -1 : 1);
  const right = order.filter((number, place) => positions[number] === place + 1).length;
  const same = await hash(seed) === commitment;
  say("room-check", `Checked in this browser: the seed is ${same ? "" : "not "}the one that was promised, and ` +
    `${people(right)} of ${people(order.length)} positions are right.`,
    same && right === order.length ? "kept" : "bad");
}

// The budgets: a row for each node of the tree.

function drawTree(nodes = {}) {
  for (const row of all("#budgets-tree tr[id]")) {
    const node = nodes[row.id.slice("budgets-".length)] ?? { used: 0, max: +row.dataset.max, hit: "" };
    const [, bar, used, hit] = row.children;
    row.dataset.used = node.used;
    row.dataset.hit = node.hit;
    used.textContent = `${node.used} of ${node.max}`;
    hit.textContent = node.hit || "–";
    bar.firstChild.replaceChildren();
    shape(bar.firstChild, "rect", { width: 100, height: 12, class: "left" });
    shape(bar.firstChild, "rect", { width: Math.min(100, 100 * node.used / node.max), height: 12,
      class: node.hit ? "bought" : "people" });
  }
}

function showTree(data, event) {
  fill(byID("budgets"), data);
  drawTree(data.nodes);
  byID("budgets-others").className = data.others > 0 ? "over" : "kept";
  const left = Math.ceil(data.raised_ms / 1000);
  const on = { raise: left > 0, pause: data.paused, all: data.all };
  say("budgets-decided", [on.raise && `ann has more, for ${left} s (sue: launch day)`,
    on.pause && "web is paused (sue: a key leaked)"].filter(Boolean).join("; ") || "nothing");
  for (const [what, pressed] of Object.entries(on)) {
    byID("budgets-" + what).setAttribute("aria-pressed", pressed);
    byID("budgets-" + what).setAttribute("aria-disabled", event === "done");
  }
  if (event === "done") return `Ann was refused ${data.refused} times, the others ${data.others} times.`;
  if (on.pause) return "Her team is paused. The other team goes on.";
  if (on.all) return "All flood: what the organisation has is shared, and never exceeded.";
  return on.raise ? "She has more for an hour, in each process." : "Ann floods: her own limit refuses her.";
}

// The polls.

function showPolls(data, event) {
  fill(byID("stuffing"), data);
  for (const [poll, { tally: { red, blue }, attacker }] of Object.entries(data)) {
    const id = "stuffing-" + poll;
    const answers = Object.entries(attacker).map(([status, n]) => `${n} × ${status}`);
    say(id + "-answers", answers.join(", ") || "–");
    say(id + "-winner", red > blue ? `The attacker wins, ${red} to ${blue}.`
      : `The people win, ${blue} to ${red}.`);
    byID(id + "-red").className = red > blue ? "over" : "kept";
    drawVotes(byID(id + "-bars"), red, blue);
  }
  return event === "done" && "Both polls took the same votes.";
}

// drawVotes draws the people's votes above the attacker's.
function drawVotes(svg, red, blue) {
  svg.replaceChildren();
  [[blue, "people"], [red, "bought"]].forEach(([n, kind], i) => {
    const width = Math.min(400, n / sizes.accounts * 400);
    const y = 4 + i * 30;
    const bar = { x: 0, y, height: 24, rx: 4 };
    shape(svg, "rect", { ...bar, width: 400, class: "left" });
    shape(svg, "rect", { ...bar, width, class: kind });
    const at = width > 280 ? { x: 10, class: "inside" } : { x: width + 10 };
    shape(svg, "text", { y: y + 16, ...at }, `${n} ${kind}`);
  });
}

// Stories: a list of steps.

function showSteps(id) {
  const list = byID(id + "-steps");
  list.replaceChildren();
  let last = "";
  return (data, event) => {
    if (event === "done") return last;
    const figures = Object.entries(data.figures ?? {});
    const item = element("li", `${data.ms} ms: ${last = data.step}`);
    if (figures.length) item.append(` (${figures.map(figure => figure.join(" ")).join(", ")})`);
    Object.assign(item.dataset, data.figures);
    list.append(item);
  };
}

// Outages: a tick for each request.

function drawLine(note) {
  const svg = byID("outage-line");
  svg.replaceChildren();
  shape(svg, "rect", { x: 0, y: 6, width: 720, height: 48, rx: 4, class: "left" });
  shape(svg, "text", { x: 16, y: 34 }, note);
}

function showTraffic(data, event) {
  const { breaker, up } = data;
  fill(byID("outage"), data);
  rows(byID("outage-limit"), data.limit);
  rows(byID("outage-sale"), data.sale, status => status === "200" ? "200, order taken" : status + ", closed");
  shape(byID("outage-line"), "rect", { x: 720 * data.ms / sizes.traffic, y: 6, width: 3.4, height: 48,
    class: breaker.state === "open" ? "alone" : up ? "with" : "lost" });
  if (event === "done") {
    return `The traffic has ended. The breaker is ${breaker.state}. Times it has opened: ${breaker.opened}.`;
  }
  if (breaker.state === "open") return "Redis is not asked: the limit goes on, the sale is closed, nobody waits.";
  return up ? "Redis answers: the limit counts there, and the sale is open." : "Redis is away.";
}

// The limit.

const sources = {
  redis: "Redis decided, by one call of a script.",
  remembered: "The process remembers the refusal for as long as it is certain to last, a second at most. " +
    "So Redis was not asked, and no script ran.",
  local: "Redis did not answer, so the process applied the limit by itself.",
};
const terms = (name, ...values) => [element("dt", name), ...values.map(value => element("dd", ...[value].flat()))];

function showLimit(data) {
  byID("limit-fields").replaceChildren(...data.fields.flatMap(({ name, value, parts }) => terms(
    `${name}: ${value}`, ...parts.map(([part, meaning]) => [element("code", part), " " + meaning]))));
  say("limit-body", data.body);
  say("limit-source", sources[data.source] ?? data.source);
  byID("limit-calls").replaceChildren(...data.calls.map(showCall));
  byID("limit-answer").hidden = false;
  byID("limit").dataset.source = data.source;
  return `${data.status} ${data.text}`;
}

function showCall(call) {
  const numbered = values => values.map((value, i) => `${i + 1}: ${value}`);
  const source = element("pre", call.source);
  source.tabIndex = 0;
  const div = element("div",
    element("dl", ...terms("Command", `${call.command} ${call.script}`),
      ...terms("KEYS", ...numbered(call.keys)), ...terms("ARGV", ...numbered(call.args)),
      ...terms("Reply", call.reply)),
    element("details", element("summary", "The script, " + call.script), source));
  div.dataset.script = call.script;
  return div;
}

// shows has what begins a run, and returns what shows its events. That returns what the status says, if
// anything.
const startTraffic = () => (drawLine(""), showTraffic);
const shows = {
  attack: () => (all("[data-lane]").forEach(drawLane), showAttack),
  sale: () => showRace, "sale-same": () => showSameOrders,
  room: () => (drawRoom(), showRoom),
  budgets: () => showTree, poll: () => showPolls, limit: () => showLimit,
  traffic: startTraffic, outage: startTraffic,
};

// Buttons.

function onClick(buttons, act) {
  for (const button of buttons) button.addEventListener("click", () => act(button));
}

// change posts what a button changes, and shows the state after it.
async function change(path, fields, status) {
  try {
    const answer = await ask(path, { method: "POST", body: new URLSearchParams(fields) });
    showState(await answer.json());
    return true;
  } catch (error) {
    say(status, error.message);
  }
}

onClick(all("[data-run]"), button => play(button));
onClick(all("[data-during]"), button => { // it changes the run that goes on
  if (button.getAttribute("aria-disabled") === "true") return;
  const on = button.getAttribute("aria-pressed") !== "true";
  change("/scenarios/" + button.dataset.during, { on }, button.closest("[data-state]").id + "-status");
});
onClick(all("#redis-switch"), async button => {
  const on = button.getAttribute("aria-checked") === "true";
  const changed = await change("/redis", { redis: on ? "off" : "on" }, "redis-state");
  if (changed && on) byID("outage-run").click(); // otherwise there is nothing to see
});
onClick(all("#reset"), async () => {
  say("reset-status", "Resetting …");
  if (await change("/reset", {}, "reset-status")) location.reload();
});

// What is pressed by hand is closed until somebody goes there.
const more = byID("more");
more.open = location.hash.length > 1 && more.querySelector(location.hash) !== null;
onClick(all("nav a[href^='#']"), link => { more.open ||= more.querySelector(link.hash) !== null; });

// By hand.

const form = document.querySelector("form");
form.addEventListener("submit", async event => {
  event.preventDefault();
  const button = event.submitter ?? form.querySelector("button");
  const fields = new URLSearchParams(new FormData(form));
  if (button.name) fields.set(button.name, button.value);
  const path = new URL(button.formAction).pathname;
  if (button.formMethod === "get") return showAnswer("GET " + path, await fetch(path + "?" + fields));
  const headers = path.startsWith("/sales/") ? { "Idempotency-Key": JSON.stringify(byID("key").value) } : {};
  showAnswer("POST " + path + "  " + fields, await fetch(path, { method: "POST", headers, body: fields }));
});

async function showAnswer(request, answer) {
  const lines = [request, answer.status + " " + answer.statusText];
  for (const name of ["RateLimit", "Retry-After", "Idempotent-Replayed"]) {
    if (answer.headers.has(name)) lines.push(name + ": " + answer.headers.get(name));
  }
  if (answer.headers.has("Idempotent-Replayed")) lines.push("This is a replay: nothing was sold again.");
  byID("answers").textContent = lines.join("\n") + "\n" + (await answer.text()).trim();
}

// What will happen.

for (const b of all("[data-during]")) b.setAttribute("aria-disabled", "true");
all("[data-lane]").forEach(drawLane);
for (const svg of all("#race svg")) tickets(svg, {});
drawRoom();
drawTree();
for (const svg of all("#stuffing svg")) drawVotes(svg, 0, 0);
drawLine("ten requests a second, each one a tick");
watch();
