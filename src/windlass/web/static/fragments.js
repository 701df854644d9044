// Brings a page up to date: fetches its own address, and replaces what differs, part by part.
// A part does not change while the user types, selects text, or has focus inside it.
// Returns "ok"; "busy", if it is due again; "login", if the answer leads elsewhere; else "failed".
const MOST_MILLISECONDS = 30000;
const policy = globalThis.trustedTypes?.createPolicy("windlass", { createHTML: (text) => text });

export async function refresh(main) {
  if (isBusy(main)) return "busy";
  const address = new URL(location.href);
  address.searchParams.delete("done");
  // By hand: a login of another host would be refused by the policy of the page, and say nothing.
  const answer = await fetch(address, {
    headers: { accept: "text/html" }, redirect: "manual", signal: AbortSignal.timeout(MOST_MILLISECONDS),
  });
  if (answer.type === "opaqueredirect" || answer.status === 401) return "login";
  if (!answer.ok) return "failed";
  const text = await answer.text();
  if (isBusy(main)) return "busy";
  const fresh = new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
  // Rows that the user reads stay, and so does the link to the rows after them.
  const listed = main.querySelector("[data-rows]");
  const rows = listed?.tBodies[0].rows.length ? listed : null;
  const kept = rows ? [rows, ...main.querySelectorAll("#newer, #pages")] : [];
  if (rows) updateRows(main, rows, fresh);
  for (const old of main.querySelectorAll("[id]")) {
    if (kept.some((each) => each.contains(old)) || !isPart(old, main)) continue;
    const next = fresh.getElementById(old.id);
    if (next) replace(old, next);
  }
  return "ok";
}

function isPart(element, main) {
  return element.isConnected && !element.parentElement.closest("main [id]") && main.contains(element)
    && !element.matches("input, textarea, select, form *");
}

function isBusy(main) {
  const focus = document.activeElement;
  if (focus && main.contains(focus) && focus.matches("input, textarea, select")) return true;
  const selection = getSelection();
  return Boolean(selection && !selection.isCollapsed && main.contains(selection.anchorNode));
}

function replace(old, next) {
  for (const each of old.querySelectorAll("details[id][open]")) {
    const same = next.querySelector(`#${CSS.escape(each.id)}`);
    if (same) same.open = true;
  }
  if (old.contains(document.activeElement) && document.activeElement !== old) return;
  if (old.isEqualNode(next)) return;
  old.replaceWith(document.importNode(next, true));
}

// Rows stay where they are: known ones are updated or marked as gone, and others are counted above
// the table. Lists have the newest first, and ids are in the order of time.
function updateRows(main, table, fresh) {
  const body = table.tBodies[0];
  const found = [...(fresh.querySelector("[data-rows]")?.tBodies[0].rows ?? [])];
  const known = new Set([...body.rows].map((row) => row.id));
  const [first, last] = [body.rows[0].id, body.rows[body.rows.length - 1].id];
  // What is below a list that goes on is not part of it: Older leads there.
  const goesOn = main.querySelector("#pages [rel=next]");
  const others = found.filter((row) => !known.has(row.id) && !(goesOn && row.id < last));
  const newer = others.filter((row) => row.id > first).length;

  for (const row of found) {
    const own = known.has(row.id) && document.getElementById(row.id);
    if (own && !own.contains(document.activeElement) && !own.isEqualNode(row)) own.replaceWith(document.importNode(row, true));
  }
  const isWhole = !fresh.querySelector("#pages [rel=next]");
  const kept = new Set(found.map((row) => row.id));
  for (const row of body.rows) {
    if (!kept.has(row.id) && (isWhole || row.id > found.at(-1)?.id)) markLeft(row);
  }
  const counts = [];
  if (newer) counts.push(newer === found.length ? `${newer} or more newer` : `${newer} newer`);
  if (others.length > newer) counts.push(`${others.length - newer} further down`);
  const link = main.querySelector("#newer");
  link.hidden = counts.length === 0;
  link.textContent = counts.join(", ");
}

// The old state would be wrong, and the new one is not known here.
function markLeft(row) {
  const note = document.createElement("span");
  note.className = "quiet";
  note.textContent = "left this list";
  row.cells[0].replaceChildren(note);
}
