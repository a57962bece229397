"use strict";
// The page shows what the server measured: it counts nothing itself. Without this script the buttons under
// "By hand" submit their form, and the browser shows the bare answer.

const byID = id => document.getElementById(id);
document.documentElement.classList.add("scripted");
const sizes = Object.fromEntries(Object.entries(byID("main").dataset).map(([name, value]) => [name, +value]));

// text makes an element with a text in it, never HTML.
function text(tag, content, className) {
  const e = document.createElement(tag);
  e.textContent = content;
  if (className) e.className = className;
  return e;
}

// shape adds an SVG element to an svg, in the namespace of that svg.
function shape(svg, tag, attributes) {
  const e = document.createElementNS(svg.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  svg.append(e);
  return e;
}

// fill writes figures into the elements that name them: data-figure="sale.left".
function fill(root, data) {
  for (const e of root.querySelectorAll("[data-figure]")) {
    const value = e.dataset.figure.split(".").reduce((d, key) => d?.[key], data);
    if (value === undefined || value === null) continue;
    e.textContent = Number.isInteger(value) ? value.toLocaleString("en") : value;
  }
}

// rows writes a table with a row for each entry.
function rows(table, entries, name = key => key) {
  table.replaceChildren(...Object.entries(entries).map(([key, value]) => {
    const row = document.createElement("tr");
    const head = text("th", name(key));
    head.scope = "row";
    row.append(head, text("td", value));
    row.dataset.key = key;
    return row;
  }));
}

// Event streams.

async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(part) ?? [];
      if (name) yield { name, data: JSON.parse(data) };
    }
  }
}

// known has the number of the last run of each scenario that this page has shown.
const known = {};

// play starts a scenario, or joins its run: tabs see the same. With watch it only watches the last run. The
// section has the state in data-state: idle, running, done or failed.
async function play(button, watch) {
  const name = button.dataset.run;
  const section = button.closest("[data-state]");
  if (section.dataset.state === "running") return;
  const show = (shows[name] ?? (() => showSteps(section.id)))();
  const status = byID(section.id + "-status");
  const buttons = section.querySelectorAll(":scope > p > [data-run]");
  for (const b of buttons) b.setAttribute("aria-disabled", "true");
  section.dataset.state = "running";
  status.textContent = "Running …";
  const fail = why => { section.dataset.state = "failed"; status.textContent = why; };
  try {
    const answer = await fetch("/scenarios/" + name, { method: watch ? "GET" : "POST" });
    if (!answer.ok) return fail((await answer.text()).trim());
    known[name] = +answer.headers.get("Run");
    for await (const event of events(answer)) {
      if (event.name === "failed") return fail(event.data.error);
      const said = show(event.name, event.data);
      if (said && said !== status.textContent) status.textContent = said; // what changes is read aloud
      if (event.name === "done") section.dataset.state = "done";
    }
    if (section.dataset.state === "running") fail("The server ended this before it was done.");
  } catch {
    fail("The server did not answer.");
  } finally {
    for (const b of buttons) b.removeAttribute("aria-disabled");
    for (const b of section.querySelectorAll("[data-during]")) b.setAttribute("aria-disabled", "true");
  }
}

const runs = new Set(); // of scenarios, each a promise that it ends
async function run(button, watch) {
  const one = play(button, watch);
  runs.add(one);
  await one;
  runs.delete(one);
}

// follow watches what other tabs have started. The first page that sees an untouched demo starts the attack.
let opened = false;
function follow(data) {
  if (Object.keys(known).some(name => !(name in data.runs))) { // another tab has reset the demo,
    if (runs.size > 0) return; // which ends the runs of this one
    forget();
  }
  for (const [name, number] of Object.entries(data.runs)) {
    if (known[name] === number) continue;
    const button = document.querySelector(`[data-run="${name}"]`);
    if (button.closest("[data-state]").dataset.state !== "running") run(button, true);
  }
  if (!opened && data.redis.up && !data.runs.attack) run(byID("attack-run"));
  opened = true;
}

// The attack: each request is a tick on its pile, those let in above the line, the others below.

const attack = { limit: 100, total_ms: 5000, window_ms: 2000 };
const across = ms => 360 * ms / attack.total_ms;
const axis = 126; // y of the time line
const bin = 100; // ms of a pile

function drawLane(lane) {
  const svg = lane.querySelector("svg");
  svg.replaceChildren();
  lane.piles = {};
  lane.box = shape(svg, "rect", { x: 0, y: 18, height: axis - 18, width: 0, class: "box" });
  lane.bracket = shape(svg, "path", { d: "", class: "bracket" });
  lane.label = shape(svg, "text", { x: 0, y: 12, class: "label" });
  shape(svg, "line", { x1: 0, x2: 360, y1: axis, y2: axis, class: "axis" });
  for (let ms = 0; ms < attack.total_ms; ms += 1000) {
    shape(svg, "line", { x1: across(ms), x2: across(ms), y1: axis, y2: axis + 5, class: "axis" });
    shape(svg, "text", { x: across(ms) + 3, y: 156 }).textContent = ms / 1000 + " s";
  }
  const burst = across(attack.window_ms * .9);
  shape(svg, "rect", { x: burst, y: 28, width: 14, height: axis - 28, class: "plan" });
  shape(svg, "text", { x: burst + 22, y: 42, class: "plan-text" }).textContent = "here comes the burst";
}

function showWorst(lane, worst, from) {
  const end = across(from + attack.window_ms);
  const x = across(from);
  lane.box.setAttribute("x", x);
  lane.box.setAttribute("width", end - x);
  lane.bracket.setAttribute("d", `M${x + .8} 24V18H${end - .8}V24`);
  lane.label.setAttribute("x", (x + end) / 2);
  lane.label.textContent = `${worst} within ${attack.window_ms / 1000} s`;
  const number = byID(lane.id + "-worst");
  number.textContent = worst;
  number.className = lane.id === "attack-bucket" ? "" : worst > attack.limit ? "over" : "kept";
}

const lanes = document.querySelectorAll("[data-lane]");

function showAttack(name, data) {
  if (name === "begin") {
    Object.assign(attack, data);
    for (const lane of lanes) {
      drawLane(lane);
      byID(lane.id + "-worst").textContent = 0;
    }
    return "";
  }
  if (name === "dots") {
    const lane = byID("attack-" + data.lane);
    const svg = lane.querySelector("svg");
    if (data.worst > 1) for (const e of svg.querySelectorAll(".plan, .plan-text")) e.remove();
    for (const dot of data.dots) {
      const place = Math.floor(dot.ms / bin) + (dot.admitted ? "+" : "-");
      const pile = lane.piles[place] = (lane.piles[place] ?? -1) + 1;
      const y = dot.admitted ? axis - 1.5 - Math.min(pile, 100) : axis + 3 + Math.min(pile * 4, 8);
      shape(svg, "rect", { x: across(Math.floor(dot.ms / bin) * bin), y, width: across(bin) - .6,
        height: dot.admitted ? 1.6 : 2.5, class: dot.admitted ? "admitted" : "refused" });
    }
    showWorst(lane, data.worst, data.from_ms);
    return "";
  }
  const says = {
    naive: worst => worst > attack.limit
      ? `${worst - attack.limit} too many: the counter started again during the burst.`
      : "This machine was too slow for the burst: attack again.",
    bucket: () => "By design: its burst, and what was refilled meanwhile.",
    sliding: () => `Never more than ${attack.limit}, wherever the window begins.`,
  };
  for (const result of data.lanes) {
    const lane = byID("attack-" + result.lane);
    lane.dataset.worst = result.worst;
    lane.dataset.limit = data.limit;
    showWorst(lane, result.worst, result.from_ms);
    byID(lane.id + "-result").textContent = says[result.lane](result.worst);
  }
  const [naive, bucket, sliding] = data.lanes;
  return `Most let in within ${attack.window_ms / 1000} s: naive ${naive.worst}, ` +
    `token bucket ${bucket.worst}, sliding window ${sliding.worst}.`;
}

// The sale. Answers to orders that were sent before are replays: nothing is sold for them.

const reasons = {
  ok: "sold, in this run", replayed: "replay of an order that was sold before", sold_out: "sold out",
  in_progress: "the same order is in progress", duplicate: "one ticket per buyer",
};

function showCounts(data) {
  fill(byID("race-own"), data);
  fill(byID("race-naive"), data);
  rows(byID("race-answers"), data.answers, reason => reasons[reason] ?? reason);
  tickets(byID("race-own-grid"), { sold: data.sale.sold, held: data.sale.held });
  const { sold, oversold } = data.naive;
  tickets(byID("race-naive-grid"), { sold: sold - oversold, over: oversold });
  byID("race-sold").className = "kept";
  if (data.naive.sold > 0) {
    byID("race-naive-text").textContent = data.naive.oversold > 0
      ? `Orders for tickets that do not exist: ${data.naive.oversold}.` : "Not oversold so far.";
  }
  byID("race-naive-sold").className = data.naive.oversold > 0 ? "over" : "";
}

// tickets draws all tickets, and those that were sold beyond.
function tickets(svg, { sold = 0, held = 0, over = 0 }) {
  const kind = i => i < sold ? "sold" : i < sold + held ? "held" : "left";
  svg.replaceChildren();
  for (let i = 0; i < sizes.stock + Math.min(over, 40); i++) {
    shape(svg, "rect", { x: i % 20 * 20 + 1, y: Math.floor(i / 20) * 20 + 2, width: 18, height: 15, rx: 3,
      class: i < sizes.stock ? kind(i) : "beyond" });
  }
}

function showRace(name, data) {
  showCounts(data);
  if (name !== "done") return "";
  const naive = data.naive.oversold > 0
    ? `Its orders without a ticket: ${data.naive.oversold}.`
    : "This time the naive sale was lucky: try again.";
  return `Gatehouse sold ${data.sale.sold} of ${data.sale.stock}, the naive sale ` +
    `${data.naive.sold}. ${naive}`;
}

function showSameOrders(name, data) {
  showCounts(data);
  if (name !== "done") return "";
  const n = reason => data.answers[reason] ?? 0;
  return `The same ${data.buyers} orders again: ${n("replayed")} replays of orders that were sold before, ` +
    `${n("sold_out")} sold out, ${n("ok")} newly sold. Sold in all: ${data.sale.sold} of ${data.sale.stock}.`;
}

function showHolds(name, data) {
  fill(byID("holds"), data);
  return data.step;
}

// The waiting room: a column for each look of the server. The capacity is a line.

const chart = { base: 108, high: 84 };
const people = n => n.toLocaleString("en");
const along = ms => 400 * ms / sizes.room;

function drawRoom() {
  const check = byID("room-check");
  check.textContent = check.dataset.plan;
  check.className = "";
  byID("room-seed").textContent = "–";
  const tops = { inside: sizes.capacity + ": the capacity", line: people(sizes.visitors) + " visitors" };
  for (const [id, top] of Object.entries(tops)) {
    const svg = byID(`room-${id}-bars`);
    svg.replaceChildren();
    const y = chart.base - chart.high;
    shape(svg, "text", { x: 0, y: y - 8 }).textContent = top;
    shape(svg, "path", { d: `M0 ${y - .8}H400`, class: id === "inside" ? "bracket" : "plan" });
    shape(svg, "line", { x1: 0, x2: 400, y1: chart.base, y2: chart.base, class: "axis" });
    const opens = along(sizes.lobby);
    shape(svg, "path", { d: `M${opens} ${y + 16}V${chart.base}`, class: "plan" });
    shape(svg, "text", { x: opens + 6, y: y + 28, class: "plan-text" }).textContent = "it opens";
  }
}

function column(id, ms, n, of, below, kind) {
  const at = share => chart.high * share / of;
  const x = Math.min(along(ms), 400 - along(250)); // a slow machine may take longer
  shape(byID(`room-${id}-bars`), "rect", { x, y: chart.base - at(below + n), width: along(250) + .1,
    height: at(n), class: kind });
}

function showRoom(name, data) {
  if (name === "draw") {
    checkDraw(data);
    return "";
  }
  fill(byID("room"), data);
  column("inside", data.ms, data.inside, sizes.capacity, 0, "sold");
  column("inside", data.ms, data.called, sizes.capacity, data.inside, "called");
  column("line", data.ms, data.waiting, sizes.visitors, 0, "refused");
  byID("room-inside").className = data.most > sizes.capacity ? "over" : "kept";
  byID("room-commitment").textContent = data.commitment;
  const doors = name !== "done" && data.state === "open";
  if (doors) for (const e of byID("room").querySelectorAll(".plan-text")) e.remove();
  byID("room-leave").setAttribute("aria-disabled", !doors || data.left > 0);
  if (name === "done") {
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
  const say = (right, what) => {
    byID("room-seed").textContent = seed;
    byID("room-check").textContent = what;
    byID("room-check").className = right ? "kept" : "bad";
  };
  if (!crypto.subtle) return say(false, "Browsers compute this on localhost and by HTTPS only.");
  const bytes = new TextEncoder();
  const hash = async text => [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes.encode(text)))]
    .map(byte => byte.toString(16).padStart(2, "0")).join("");
  const keys = await Promise.all(positions.map((_, number) => hash(seed + ":" + number)));
  const order = [...keys.keys()].sort((a, b) => keys[a] < keys[b] ? -1 : 1);
  const right = order.filter((number, place) => positions[number] === place + 1).length;
  const same = await hash(seed) === commitment;
  say(same && right === order.length, `Checked in this browser: the seed is ${same ? "" : "not "}the one ` +
    `that was promised, and ${people(right)} of ${people(order.length)} positions are right.`);
}

// The budgets: a row for each node of the tree.

function drawTree(nodes = {}) {
  for (const row of document.querySelectorAll("#budgets-tree tr[id]")) {
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

function showTree(name, data) {
  fill(byID("budgets"), data);
  drawTree(Object.fromEntries(data.nodes.map(node => [node.name, node])));
  byID("budgets-answer").textContent = data.answer;
  byID("budgets-others").className = data.others > 0 ? "over" : "kept";
  const left = Math.ceil(data.raised_ms / 1000);
  const on = { raise: left > 0, pause: data.paused, all: data.all };
  byID("budgets-decided").textContent = [on.raise && `ann has more, for ${left} s (sue: launch day)`,
    on.pause && "web is paused (sue: a key leaked)"].filter(Boolean).join("; ") || "nothing";
  for (const [what, pressed] of Object.entries(on)) {
    byID("budgets-" + what).setAttribute("aria-pressed", pressed);
    byID("budgets-" + what).setAttribute("aria-disabled", name === "done");
  }
  if (name === "done") return `Ann was refused ${data.refused} times, the others ${data.others} times.`;
  if (on.pause) return "Her team is paused. The other team goes on.";
  if (on.all) return "All flood: what the organisation has is shared, and never exceeded.";
  return on.raise ? "She has more for an hour, in each process." : "Ann floods: her own limit refuses her.";
}

// The poll.

function showPoll(name, data) {
  fill(byID("stuffing"), data);
  for (const side of ["open", "capped"]) {
    byID(`stuffing-${side}-answers`).textContent =
      Object.entries(data[side].attacker).map(([status, n]) => `${n} × ${status}`).join(", ") || "–";
    const { red, blue } = data[side].tally;
    bars(side, red, blue);
    const more = Math.max(red, blue);
    byID(`stuffing-${side}-winner`).textContent = red > blue
      ? `The attacker wins, ${more} to ${blue}.` : `The people win, ${more} to ${red}.`;
    byID(`stuffing-${side}-red`).className = red > blue ? "over" : "kept";
  }
  return name === "done" ? "Both polls took the same votes." : "";
}

// bars draws the people's votes above the attacker's.
function bars(side, red, blue) {
  const svg = byID(`stuffing-${side}-bars`);
  svg.replaceChildren();
  [[blue, "people"], [red, "bought"]].forEach(([n, kind], i) => {
    const width = Math.min(400, n / sizes.accounts * 400);
    const y = 4 + i * 30;
    shape(svg, "rect", { x: 0, y, width: 400, height: 24, rx: 4, class: "left" });
    shape(svg, "rect", { x: 0, y, width, height: 24, rx: 4, class: kind });
    const inside = width > 280;
    const x = inside ? 10 : width + 10;
    const label = shape(svg, "text", { x, y: y + 16, class: inside ? "inside" : "" });
    label.textContent = `${n} ${kind}`;
  });
}

// Small scenarios: a list of steps.

const showSteps = id => {
  byID(id + "-steps").replaceChildren();
  return (name, data) => {
    const figures = Object.entries(data.figures ?? {}).map(([key, value]) => `${key} ${value}`).join(", ");
    const item = text("li", `${data.ms} ms: ${data.step}` + (figures && ` (${figures})`));
    for (const [key, value] of Object.entries(data.figures ?? {})) item.dataset[key] = value;
    byID(id + "-steps").append(item);
    return name === "done" ? data.step : "";
  };
};

// The limit.

const sources = {
  redis: "Redis decided, by one call of a script.",
  remembered: "The process remembers the refusal for as long as it is certain to last, a second at most. " +
    "So Redis was not asked, and no script ran.",
  local: "Redis did not answer, so the process applied the limit by itself.",
};

async function askLimit() {
  const section = byID("limit");
  section.dataset.state = "running";
  try {
    const answer = await fetch("/limit", { method: "POST" });
    if (!answer.ok) throw new Error(answer.status);
    const data = await answer.json();
    byID("limit-status").textContent = `${data.status} ${data.text}`;
    byID("limit-fields").replaceChildren(...data.fields.flatMap(field => [
      text("dt", `${field.name}: ${field.value}`),
      ...field.parts.map(part => {
        const meaning = text("dd", "");
        meaning.append(text("code", part.text), " " + part.meaning);
        return meaning;
      }),
    ]));
    byID("limit-body").textContent = data.body;
    byID("limit-source").textContent = sources[data.source] ?? data.source;
    byID("limit-calls").replaceChildren(...data.calls.map(showCall));
    byID("limit-answer").hidden = false;
    section.dataset.source = data.source;
    section.dataset.state = "done";
  } catch {
    byID("limit-status").textContent = "The server did not answer.";
    section.dataset.state = "failed";
  }
}

function showCall(call) {
  const div = document.createElement("div");
  div.dataset.script = call.script;
  const list = document.createElement("dl");
  const entry = (name, values) => list.append(text("dt", name), ...values.map(value => text("dd", value)));
  entry("Command", [`${call.command} ${call.script}`]);
  entry("KEYS", call.keys.map((key, i) => `${i + 1}: ${key}`));
  entry("ARGV", call.args.map((arg, i) => `${i + 1}: ${arg}`));
  entry("Reply", [call.reply]);
  const details = document.createElement("details");
  const source = text("pre", call.source);
  source.tabIndex = 0;
  details.append(text("summary", "The script, " + call.script), source);
  div.append(list, details);
  return div;
}

// Outages: a tick for each request.

const line = { before: 0, total_ms: sizes.traffic };

function drawLine(note) {
  const svg = byID("outage-line");
  svg.replaceChildren();
  shape(svg, "rect", { x: 0, y: 6, width: 720, height: 48, rx: 4, class: "left" });
  shape(svg, "text", { x: 16, y: 34 }).textContent = note;
}

function showTraffic(name, data) {
  fill(byID("outage"), data);
  rows(byID("outage-limit"), data.limit);
  rows(byID("outage-sale"), data.sale, status => status === "200" ? "200, order taken" : status + ", closed");
  showBreaker(data.breaker);
  if (!line.before || line.before > data.ms) drawLine("");
  line.before = data.ms;
  shape(byID("outage-line"), "rect", { x: 720 * data.ms / line.total_ms, y: 6, width: 3.4, height: 48,
    class: !data.breaker.open ? data.up ? "with" : "lost" : "alone" });
  if (name !== "done") {
    if (data.breaker.open) return "Redis is not asked: the limit goes on, the sale is closed, nobody waits.";
    return data.up ? "Redis answers: the limit counts there, and the sale is open." : "Redis is away.";
  }
  return `The traffic has ended. The breaker is ${data.breaker.open ? "open" : "closed"}. ` +
    `Times it has opened: ${data.breaker.opened}.`;
}

function showBreaker(breaker) {
  byID("breaker-state").textContent = breaker.open ? "open" : "closed";
  byID("breaker-ms").textContent = breaker.open_ms;
}

function showState(data) {
  follow(data);
  for (const choice in data.tally ?? {}) byID("tally-" + choice).textContent = data.tally[choice];
  for (const part of ["left", "held", "sold"]) {
    if (data.sale) byID("sale-" + part).textContent = data.sale[part];
  }
  if (data.exports) byID("exports-running").textContent = data.exports.running;
  showBreaker(data.breaker);
  const onOff = byID("redis-switch");
  const now = data.redis.up ? "Redis is there." : "Redis is away.";
  if (data.redis.up) byID("no-redis")?.remove();
  if (!onOff || byID("redis-state").textContent === now) return; // what changes is read aloud
  onOff.setAttribute("aria-checked", data.redis.up);
  byID("redis-state").textContent = now;
}

async function post(path, fields, status) {
  const answer = await fetch(path, { method: "POST", body: new URLSearchParams(fields) });
  if (!answer.ok) {
    status.textContent = (await answer.text()).trim();
    return false;
  }
  showState(await answer.json());
  return true;
}

// Buttons.

// What is pressed by hand is closed until somebody goes there.
const more = byID("more");
more.open = location.hash.length > 1 && more.querySelector(location.hash) !== null;
for (const link of document.querySelectorAll("nav a[href^='#']")) {
  link.addEventListener("click", () => { more.open ||= more.querySelector(link.hash) !== null; });
}

const shows = {
  attack: () => showAttack, sale: () => showRace, "sale-same": () => showSameOrders, holds: () => showHolds,
  room: () => (drawRoom(), showRoom), poll: () => showPoll, budgets: () => showTree, traffic: () => showTraffic,
  outage: () => showTraffic,
};
for (const button of document.querySelectorAll("[data-run]")) {
  button.addEventListener("click", () => run(button));
}
byID("limit-run").addEventListener("click", askLimit);
byID("redis-switch")?.addEventListener("click", async () => {
  const on = byID("redis-switch").getAttribute("aria-checked") === "true";
  const changed = await post("/redis", { redis: on ? "off" : "on" }, byID("redis-state"));
  if (changed && on) byID("outage-run").click(); // otherwise there is nothing to see
});
for (const button of document.querySelectorAll("[data-during]")) { // they change the run that goes on
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-disabled") === "true") return;
    const section = button.closest("[data-state]").id;
    const on = button.getAttribute("aria-pressed") !== "true";
    const answer = await fetch(`/${section}/${button.dataset.during}?on=${on}`, { method: "POST" });
    if (!answer.ok) byID(section + "-status").textContent = (await answer.text()).trim();
  });
}
byID("reset").addEventListener("click", async () => {
  byID("reset-status").textContent = "Resetting …";
  const before = [...runs];
  if (await post("/reset", {}, byID("reset-status"))) {
    await Promise.all(before); // the reset has ended them, which the page may hear later than of the reset
    forget();
    byID("reset-status").textContent = "Everything is as at the start.";
  }
});

// forget takes the results of scenarios off the page.
function forget() {
  for (const name in known) delete known[name];
  const all = selector => document.querySelectorAll(selector);
  for (const e of all("main ol, #race-answers, #outage-limit, #outage-sale")) e.replaceChildren();
  const figures = "[data-figure], #stuffing-open-answers, #stuffing-capped-answers, #room-commitment, #budgets-answer";
  for (const e of all(figures)) e.textContent = "–";
  for (const e of all(".number b")) {
    e.textContent = 0;
    e.className = "";
  }
  for (const e of all("[data-state] [role=status]:not(#redis-state)")) e.textContent = e.dataset.plan ?? "";
  for (const e of all("[data-state]")) e.dataset.state = "idle";
  for (const e of all("[data-plan]")) e.textContent = e.dataset.plan;
  for (const lane of lanes) delete lane.dataset.worst;
  byID("limit-answer").hidden = true;
  byID("answers").textContent = "Press a button.";
  plan();
}

// plan draws what will happen.
function plan() {
  lanes.forEach(drawLane);
  tickets(byID("race-own-grid"), {});
  tickets(byID("race-naive-grid"), {});
  drawRoom();
  drawTree();
  for (const side of ["open", "capped"]) bars(side, 0, 0);
  line.before = 0;
  drawLine("ten requests a second, each one a tick");
}
const says = "[id$='-result'], [id$='-winner'], #outage-status, #race-naive-text, #room-check, #budgets-decided";
for (const e of document.querySelectorAll(says)) e.dataset.plan = e.textContent;
plan();

// By hand.

const form = document.querySelector("form");
form.addEventListener("submit", async event => {
  event.preventDefault();
  const button = event.submitter ?? form.querySelector("button");
  const fields = new URLSearchParams(new FormData(form));
  if (button.name) fields.set(button.name, button.value);
  const path = new URL(button.formAction).pathname;
  if (button.formMethod === "get") return show("GET " + path, await fetch(path + "?" + fields));
  const headers = path.startsWith("/sales/") ? { "Idempotency-Key": JSON.stringify(byID("key").value) } : {};
  show("POST " + path + "  " + fields, await fetch(path, { method: "POST", headers, body: fields }));
});

async function show(request, answer) {
  const lines = [request, answer.status + " " + answer.statusText];
  for (const name of ["RateLimit", "Retry-After", "Idempotent-Replayed"]) {
    if (answer.headers.has(name)) lines.push(name + ": " + answer.headers.get(name));
  }
  if (answer.headers.has("Idempotent-Replayed")) lines.push("This is a replay: nothing was sold again.");
  byID("answers").textContent = lines.join("\n") + "\n" + (await answer.text()).trim();
}

new EventSource("/state").addEventListener("state", event => showState(JSON.parse(event.data)));
