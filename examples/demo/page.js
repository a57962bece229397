"use strict";
// The page shows what the server measured: it counts nothing itself. Without this script the buttons under
// "By hand" submit their form, and the browser shows the bare answer.

const byID = id => document.getElementById(id);
document.documentElement.classList.add("scripted");

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
    if (value !== undefined && value !== null) e.textContent = value;
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

// play runs a scenario. The section has the state in data-state: idle, running, done or failed.
async function play(button, section, show) {
  if (button.getAttribute("aria-disabled") === "true") return;
  const status = byID(section.id + "-status");
  const buttons = section.querySelectorAll(":scope > p > [data-run]");
  for (const b of buttons) b.setAttribute("aria-disabled", "true");
  section.dataset.state = "running";
  status.textContent = "Running …";
  const fail = why => { section.dataset.state = "failed"; status.textContent = why; };
  try {
    const answer = await fetch("/scenarios/" + button.dataset.run, { method: "POST" });
    if (!answer.ok) return fail((await answer.text()).trim());
    for await (const event of events(answer)) {
      if (event.name === "failed") return fail(event.data.error);
      const said = show(event.name, event.data);
      if (said) status.textContent = said;
      if (event.name === "done") section.dataset.state = "done";
    }
    if (section.dataset.state === "running") fail("The server ended this before it was done.");
  } catch {
    fail("The server did not answer.");
  } finally {
    for (const b of buttons) b.removeAttribute("aria-disabled");
  }
}

// The attack.

const attack = { totalMS: 1, windowMS: 1 };
const across = ms => 720 * ms / attack.totalMS;
const axis = 112; // y of the time line

function showAttack(name, data) {
  if (name === "begin") {
    attack.totalMS = data.total_ms;
    attack.windowMS = data.window_ms;
    for (const lane of document.querySelectorAll("[data-lane]")) {
      const svg = lane.querySelector("svg");
      svg.replaceChildren();
      shape(svg, "line", { x1: 0, x2: 720, y1: axis, y2: axis, class: "axis" });
      for (let ms = 0; ms < attack.totalMS; ms += attack.windowMS / 2) {
        shape(svg, "line", { x1: across(ms), x2: across(ms), y1: axis, y2: 140, class: "axis" });
        shape(svg, "text", { x: across(ms) + 3, y: 147 }).textContent = ms + " ms";
      }
      byID(lane.id + "-result").textContent = "Under attack …";
      lane.piles = {};
    }
    return "";
  }
  if (name === "dots") {
    const lane = byID("attack-" + data.lane);
    const svg = lane.querySelector("svg");
    for (const dot of data.dots) {
      const place = Math.floor(across(dot.ms) / 4) + (dot.admitted ? "+" : "-");
      const pile = lane.piles[place] = (lane.piles[place] ?? -1) + 1;
      const y = dot.admitted ? axis - 4 - Math.min(pile * 2.1, 104) : axis + 5 + Math.min(pile * 3, 21);
      const kind = dot.admitted ? "admitted" : "refused";
      shape(svg, "circle", { cx: across(dot.ms), cy: y, r: 1.7, class: kind });
    }
    return "";
  }
  for (const result of data.lanes) {
    const lane = byID("attack-" + result.lane);
    const svg = lane.querySelector("svg");
    svg.prepend(shape(svg, "rect", {
      x: across(result.from_ms), width: across(attack.windowMS), y: 2, height: 138, class: "box",
    }));
    const worst = text("b", result.worst, result.worst > data.limit ? "over" : "kept");
    worst.id = lane.id + "-worst";
    lane.dataset.worst = result.worst;
    lane.dataset.limit = data.limit;
    byID(lane.id + "-result").replaceChildren("Admitted ", worst, ` of ${data.limit} in its worst window. ` +
      `In all: ${result.admitted} admitted, ${result.refused} refused.`);
  }
  const [naive, bucket, sliding] = data.lanes;
  return `Admitted in the worst window, of ${data.limit}: naive ${naive.worst}, ` +
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
  const bar = byID("race-bar");
  bar.replaceChildren();
  let x = 0;
  for (const part of ["sold", "held", "left"]) {
    const width = 500 * data.sale[part] / data.sale.stock;
    shape(bar, "rect", { x, width, y: 0, height: 24, class: part });
    x += width;
  }
  byID("race-naive-sold").className = data.naive.oversold > 0 ? "over" : "";
  byID("race-naive-oversold").className = data.naive.oversold > 0 ? "over" : "";
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

// The poll.

function showPoll(name, data) {
  fill(byID("stuffing"), data);
  for (const side of ["open", "capped"]) {
    byID(`stuffing-${side}-answers`).textContent =
      Object.entries(data[side].attacker).map(([status, n]) => `${n} × ${status}`).join(", ") || "–";
  }
  if (name !== "done") return "";
  const winner = side => data[side].tally.red > data[side].tally.blue ? "red, the attacker’s," : "blue";
  return `Without caps ${winner("open")} wins ${data.open.tally.red} : ${data.open.tally.blue} ` +
    `(red : blue). With caps ${winner("capped")} wins ${data.capped.tally.red} : ${data.capped.tally.blue}.`;
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

// Outages.

function showTraffic(name, data) {
  fill(byID("outage"), data);
  rows(byID("outage-limit"), data.limit);
  rows(byID("outage-sale"), data.sale, status => status === "200" ? "200, order taken" : status + ", closed");
  showBreaker(data.breaker);
  if (name !== "done") return "";
  return `The traffic has ended. The breaker is ${data.breaker.open ? "open" : "closed"}. ` +
    `Times it has opened: ${data.breaker.opened}.`;
}

function showBreaker(breaker) {
  byID("breaker-state").textContent = breaker.open ? "open" : "closed";
  byID("breaker-ms").textContent = breaker.open_ms;
  byID("breaker-not-sent").textContent = breaker.not_sent;
}

function showState(data) {
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

const shows = {
  attack: () => showAttack, sale: () => showRace, "sale-same": () => showSameOrders, holds: () => showHolds,
  poll: () => showPoll, traffic: () => showTraffic,
};
const runs = new Set(); // of scenarios, each a promise that it ends
for (const button of document.querySelectorAll("[data-run]")) {
  button.addEventListener("click", async () => {
    const section = button.closest("[data-state]");
    if (section.dataset.state === "running") return;
    const run = play(button, section, (shows[button.dataset.run] ?? (() => showSteps(section.id)))());
    runs.add(run);
    await run;
    runs.delete(run);
  });
}
byID("limit-run").addEventListener("click", askLimit);
byID("redis-switch")?.addEventListener("click", async () => {
  const on = byID("redis-switch").getAttribute("aria-checked") === "true";
  const changed = await post("/redis", { redis: on ? "off" : "on" }, byID("redis-state"));
  if (changed && on) byID("outage-run").click(); // otherwise there is nothing to see
});
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
  const all = selector => document.querySelectorAll(selector);
  for (const e of all("main svg, main ol, #race-answers, #outage-limit, #outage-sale")) e.replaceChildren();
  for (const e of all("[data-figure], #stuffing-open-answers, #stuffing-capped-answers")) e.textContent = "–";
  for (const e of all("[data-state] > [role=status]")) e.textContent = "";
  for (const e of all("[data-state]")) e.dataset.state = "idle";
  for (const lane of all("[data-lane]")) {
    delete lane.dataset.worst;
    byID(lane.id + "-result").textContent = "Not attacked yet.";
  }
  byID("limit-answer").hidden = true;
  byID("answers").textContent = "Press a button.";
}

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
