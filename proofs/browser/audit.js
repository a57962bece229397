// Returns the faults of the page as a list of texts, by the success criteria of WCAG 2.2 that a script can check.
(() => {
  const faults = [], all = s => [...document.querySelectorAll(s)], seen = e => e.checkVisibility({visibilityProperty: true});
  const say = (e, what) => faults.push(e.outerHTML.slice(0, 100).replace(/\s+/g, " ") + ": " + what);
  const root = document.documentElement;
  if (!root.lang) faults.push("no language (3.1.1)");
  if (!document.title.trim()) faults.push("no title (2.4.2)");
  if (all("main").filter(seen).length !== 1) faults.push("no main landmark, or several (1.3.1)");
  if (!all("meta[name=viewport]").length) faults.push("no viewport");
  if (root.scrollWidth > root.clientWidth) faults.push("wider than the window: " + root.scrollWidth + " (1.4.10)");
  const ids = new Set();
  for (const e of all("[id]")) {
    if (ids.has(e.id)) say(e, "two elements of one id");
    ids.add(e.id);
  }
  let level = 0;
  for (const e of all("h1,h2,h3,h4,h5,h6").filter(seen)) {
    const own = +e.tagName[1];
    if (own > level + 1) say(e, "h" + own + " after h" + level + " (1.3.1)");
    level = own;
  }
  if (all("h1").filter(seen).length !== 1) faults.push("no h1, or several");
  const textOf = id => (document.getElementById(id) || {textContent: ""}).textContent;
  const nameOf = e => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") || "").split(/\s+/).map(textOf).join(" ") ||
    [...(e.labels || [])].map(l => l.textContent).join(" ") || e.alt || e.textContent || e.title || "").trim();
  for (const e of all("a[href],button,input:not([type=hidden]),select,textarea,summary,img,[role=img],table,progress").filter(seen)) {
    const name = e.tagName === "TABLE" ? (e.caption ? e.caption.textContent : nameOf({...e, textContent: "", getAttribute: n => e.getAttribute(n)})) :
      e.matches("select,input,textarea") ? nameOf({labels: e.labels, title: e.title, getAttribute: n => e.getAttribute(n)}) : nameOf(e);
    if (!name.trim()) say(e, e.tagName.toLowerCase() + " has no name (4.1.2)");
    for (const id of (e.getAttribute("aria-describedby") || "").split(/\s+/).filter(Boolean))
      if (!document.getElementById(id)) say(e, "is described by " + id + ", which is not there");
    const box = e.getBoundingClientRect();
    if (e.matches("button,input,select,summary") && (box.width < 24 || box.height < 24))
      say(e, "is " + Math.round(box.width) + " by " + Math.round(box.height) + ", a target has 24 by 24 (2.5.8)");
  }
  const colour = text => {
    const c = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    c.fillStyle = text; c.fillRect(0, 0, 1, 1);
    const d = c.getImageData(0, 0, 1, 1).data;
    return [d[0], d[1], d[2], d[3] / 255];
  };
  const known = {}, read = t => known[t] = known[t] || colour(t);
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const luminance = c => {
    const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backdrop = e => {
    const layers = [];
    for (; e; e = e.parentElement) {
      layers.push(read(getComputedStyle(e).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reduceRight((below, top) => over(top, below), read("Canvas").slice(0, 3).concat(1));
  };
  // A canvas knows no dark mode: its Canvas is white. An element says what the page's is.
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.backgroundColor = "Canvas";
  known.Canvas = colour(getComputedStyle(probe).backgroundColor);
  probe.remove();
  const done = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; n = walk.nextNode();) {
    const e = n.parentElement;
    if (!n.textContent.trim() || done.has(e) || !seen(e) || e.closest("script,style,noscript,[disabled]")) continue;
    done.add(e);
    const s = getComputedStyle(e), below = backdrop(e), front = over(read(s.color), below);
    const [light, dark] = [luminance(front), luminance(below)].sort((a, b) => b - a), ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(s.fontSize), large = size >= 24 || size >= 18.66 && +s.fontWeight >= 700;
    if (ratio < (large ? 3 : 4.5)) say(e, "contrast " + ratio.toFixed(2) + " (1.4.3)");
  }
  return faults;
})()
