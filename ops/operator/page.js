// Brings the figures of the list up to date, every five seconds while somebody can see them. Forms stay as they
// are. Without scripts a reload does the same.
const live = () => document.querySelectorAll("[data-live]");
const bar = document.getElementById("bar");
if (bar) {
  const said = bar.appendChild(document.createElement("span"));
  const button = bar.appendChild(document.createElement("button"));
  button.type = "button";
  let paused = false, asking = false;
  const name = () => { button.textContent = paused ? "Go on" : "Pause"; };
  const time = () => new Date().toISOString().slice(11, 19) + " UTC";
  said.textContent = "Figures of " + time() + " ";
  const refresh = async () => {
    if (paused || asking || document.hidden) return;
    asking = true;
    try {
      const response = await fetch(location.href, {headers: {Accept: "text/html"}});
      if (!response.ok) throw new Error(response.status);
      const next = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const part of live()) {
        const now = next.getElementById(part.id);
        if (!now || now.innerHTML === part.innerHTML) continue;
        const open = new Set([...part.querySelectorAll("details[open] a")].map(a => a.href));
        part.innerHTML = now.innerHTML;
        for (const more of part.querySelectorAll("details")) more.open = open.has(more.querySelector("a")?.href);
      }
      said.textContent = "Figures of " + time() + " ";
    } catch {
      if (!said.textContent.includes("cannot")) said.textContent += "cannot be brought up to date. ";
    }
    asking = false;
  };
  button.addEventListener("click", () => { paused = !paused; name(); refresh(); });
  document.addEventListener("visibilitychange", refresh);
  name();
  setInterval(refresh, 5000);
}
