// Shows what a job streams, as it comes, after what the page already has.
// HTTP/1.1 has six connections for a host: the streams of all tabs take at most three of them, only
// while their tab is seen. One without a free connection asks again every few seconds instead.
const CONNECTIONS = 3;
const MOST_SHOWN = 2000;
const TRIES = 5;
const PAUSE_MILLISECONDS = 5000;
// As the server escapes text: control characters, marks of direction, lone surrogates.
const HARMFUL = /(?![\n\t])[\p{Cc}\p{Cs}\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

export function follow(section) {
  const log = section.querySelector("[role=log]");
  const note = section.querySelector("[data-stream-note]");
  let after = section.dataset.after;
  let over = "over" in section.dataset;
  let wanted = false;
  let failures = 0;
  let source = null;
  let free = null;

  const close = () => {
    source?.close();
    source = null;
    free?.();
    free = null;
  };
  const may = () => wanted && !over && !source && !document.hidden;
  const open = async () => {
    if (!may()) return;
    const connection = await take();
    if (!may()) { connection?.(); return; }
    free = connection;
    source = new EventSource(`${section.dataset.stream}?after=${after}${free ? "" : "&wait=no"}`);
    source.addEventListener("open", () => { failures = 0; });
    source.addEventListener("message", (event) => {
      after = event.lastEventId;
      add(Number(after.split("-")[1]), JSON.parse(event.data));
    });
    source.addEventListener("restart", (event) => {
      after = event.lastEventId;
      for (const each of [...log.children]) if (Number(each.dataset.number) > Number(event.data)) each.remove();
    });
    source.addEventListener("end", () => {
      over = true;
      close();
      note.textContent += ", the last";
    });
    source.addEventListener("error", () => {
      if (source?.readyState !== EventSource.CLOSED) return;
      close();
      failures += 1;
      if (failures < TRIES) setTimeout(open, PAUSE_MILLISECONDS * failures);
    });
  };
  const add = (number, value) => {
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
    const chunk = document.createElement("span");
    chunk.dataset.number = number;
    if (typeof value !== "string") chunk.className = "value";
    chunk.textContent = inert(typeof value === "string" ? value : `${JSON.stringify(value)}\n`);
    log.append(chunk);
    if (log.childElementCount > MOST_SHOWN) log.firstElementChild.remove();
    const first = Number(log.firstElementChild.dataset.number);
    note.textContent = `chunks ${first.toLocaleString("en")} to ${number.toLocaleString("en")}`;
    section.querySelector("[data-stream-pages]").hidden = true;
    section.hidden = false;
    if (atEnd) log.scrollTop = log.scrollHeight;
  };

  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
  globalThis.addEventListener("pagehide", close);
  return { listen(isWanted) { wanted = isWanted; if (wanted) open(); else close(); } };
}

// Resolves to a function that gives the connection back; null if none is free, or that is unknown.
async function take() {
  for (let number = 0; navigator.locks && number < CONNECTIONS; number += 1) {
    const release = await new Promise((resolve) => {
      navigator.locks.request(`windlass job stream ${number}`, { ifAvailable: true },
        (lock) => (lock ? new Promise((done) => { resolve(done); }) : resolve(null)),
      ).catch(() => resolve(null));
    });
    if (release) return release;
  }
  return null;
}

function inert(text) {
  return text.replace(HARMFUL, (each) => `\\u${each.codePointAt(0).toString(16).padStart(4, "0")}`);
}
