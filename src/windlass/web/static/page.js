// The life of a page: copy buttons, the live switch, and fragments that are fetched when the store
// changes. Everything else works without this script.
import { changes } from "./stream.js";
import { refresh } from "./fragments.js";
import { follow } from "./jobstream.js";
import { suggestFor } from "./suggest.js";

const LIVE = "windlass-live";
const main = document.querySelector("main");
const topics = (main?.dataset.live ?? "").split(/\s+/).filter(Boolean);
const button = document.querySelector("#live");
const word = document.querySelector("#live-word");
const section = document.querySelector("[data-stream]");
const stream = section && follow(section);
if (stream && !(button && topics.length)) stream.listen(true);

for (const each of document.querySelectorAll(".copy")) showCopy(each);
for (const each of document.querySelectorAll("[data-suggest]")) suggestFor(each);
document.addEventListener("click", (event) => {
  const copy = event.target.closest?.(".copy");
  if (copy) copyText(copy);
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector("#q");
  if (search) { event.preventDefault(); search.focus(); }
});

function showCopy(each) {
  each.hidden = !navigator.clipboard;
}

async function copyText(each) {
  await navigator.clipboard.writeText(each.dataset.copy);
  each.textContent = "Copied";
  setTimeout(() => { each.textContent = "Copy"; }, 1500);
}

if (button && topics.length) {
  let wanted = readWanted();
  let due = false;
  let busy = false;

  const show = () => {
    button.dataset.state = wanted ? "live" : "paused";
    button.setAttribute("aria-pressed", String(wanted));
    word.textContent = wanted ? "Live" : "Paused";
    stream?.listen(wanted);
  };
  const update = async () => {
    if (!wanted || busy || document.hidden) { due = true; return; }
    busy = true;
    due = false;
    try {
      if (!(await refresh(main))) due = true;
      for (const each of main.querySelectorAll(".copy")) showCopy(each);
    } catch {
      // The server is away; the next change, or the next poll, tries again.
    } finally {
      busy = false;
    }
  };

  button.hidden = false;
  show();
  button.addEventListener("click", () => {
    wanted = !wanted;
    saveWanted(wanted);
    show();
    if (wanted) update();
  });
  document.addEventListener("visibilitychange", () => { if (due) update(); });
  setInterval(() => { if (due) update(); }, 2000);
  changes(document.body.dataset.events, (changed) => {
    if (changed === null || changed.some((each) => topics.includes(each) || each === "store")) update();
  });
}

function readWanted() {
  try { return localStorage.getItem(LIVE) !== "off"; } catch { return true; }
}

function saveWanted(wanted) {
  try { localStorage.setItem(LIVE, wanted ? "on" : "off"); } catch { /* Private windows forget it. */ }
}
