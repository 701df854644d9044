// Brings a page up to date: fetches its own address, and replaces what differs, part by part.
// Nothing changes under somebody who types, selects text, or has focus inside the part: then it
// returns false, and is due again. An address that is refused is not: it would be refused again.
const policy = globalThis.trustedTypes?.createPolicy("windlass", { createHTML: (text) => text });

export async function refresh(main) {
  if (isBusy(main)) return false;
  const address = new URL(location.href);
  address.searchParams.delete("done");
  const answer = await fetch(address, { headers: { accept: "text/html" } });
  if (!answer.ok || answer.redirected) return true;
  if (isBusy(main)) return false;
  const text = await answer.text();
  const fresh = new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
  const rows = main.querySelector("[data-rows]");
  if (rows) updateRows(main, rows, fresh.querySelector("[data-rows]"));
  for (const old of main.querySelectorAll("[id]")) {
    if (rows?.contains(old) || old.id === "newer" || !isPart(old, main)) continue;
    const next = fresh.getElementById(old.id);
    if (next) replace(old, next);
  }
  return true;
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

// Rows stay where they are: known ones are updated, and new ones are counted above the table.
function updateRows(main, table, fresh) {
  if (!fresh) return;
  const body = table.tBodies[0];
  const known = new Set([...body.rows].map((row) => row.id));
  let newer = 0;
  for (const row of fresh.tBodies[0].rows) {
    if (!known.has(row.id)) { newer += 1; continue; }
    const own = document.getElementById(row.id);
    if (!own.contains(document.activeElement) && !own.isEqualNode(row)) own.replaceWith(document.importNode(row, true));
  }
  const link = main.querySelector("#newer");
  link.hidden = newer === 0;
  link.textContent = newer === fresh.tBodies[0].rows.length ? `${newer} or more newer` : `${newer} newer`;
}
