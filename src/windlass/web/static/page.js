// The life of a page: copy buttons, the live switch, and fragments that are fetched when the store
// changes. Everything else works without this script.
import { changes } from "./stream.js";
import { refresh } from "./fragments.js";
import { follow } from "./jobstream.js";
import { suggestFor } from "./suggest.js";

const LIVE = "windlass-live";
// Milliseconds, but for the first: how many times the time of an answer passes before the next.
const WAIT_TIMES = 10;
const MOST_WAIT = 300000;
const RETRY = 5000;
const OFTEN = 3000;
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
  const login = document.querySelector("#live-login");
  let wanted = readWanted();
  let due = false;
  let busy = false;
  let state = "ok";
  let seen = new Date();
  let asked = performance.now();
  let notBefore = 0;

  const show = () => {
    const isStale = wanted && state !== "ok";
    button.dataset.state = isStale ? "stale" : wanted ? "live" : "paused";
    button.setAttribute("aria-pressed", String(wanted));
    const since = `Not up to date since ${seen.toISOString().slice(11, 16)} UTC`;
    word.textContent = isStale ? since : wanted ? "Live" : "Paused";
    login.href = location.href;
    login.hidden = !isStale || state !== "login";
  };
  const update = async () => {
    if (!wanted || busy || document.hidden || performance.now() < notBefore) { due = true; return; }
    busy = true;
    due = false;
    asked = performance.now();
    const found = await refresh(main).catch(() => "failed");
    const took = performance.now() - asked;
    busy = false;
    if (found !== "ok") due = true;
    if (found === "busy") return;
    state = found;
    if (found === "ok") seen = new Date();
    // A page that is costly is asked for less often, so that looking on never becomes the load.
    notBefore = performance.now() + Math.min(took * WAIT_TIMES, MOST_WAIT);
    if (found !== "ok") notBefore = Math.max(notBefore, performance.now() + RETRY);
    show();
    for (const each of main.querySelectorAll(".copy")) showCopy(each);
  };

  button.hidden = false;
  show();
  stream?.listen(wanted);
  button.addEventListener("click", () => {
    wanted = !wanted;
    saveWanted(wanted);
    show();
    stream?.listen(wanted);
    if (wanted) { notBefore = 0; update(); }
  });
  document.addEventListener("visibilitychange", () => { if (due) update(); });
  setInterval(() => {
    // What a running job reports, and its steps, change nothing that all pages share.
    const isOften = main.querySelector("[data-often]") && performance.now() - asked > OFTEN;
    if (due || isOften) update();
  }, 1000);
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
