// Suggestions for the search box: a combobox with a listbox. The server says what may follow the
// text before the caret; without this script, the box has a list of whole terms.
const WAIT_MILLISECONDS = 80;

export function suggestFor(input) {
  const list = document.createElement("ul");
  list.id = "suggestions";
  list.className = "suggestions";
  list.hidden = true;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  const status = document.createElement("span");
  status.className = "unseen";
  status.setAttribute("role", "status");
  input.after(list, status);
  input.type = "text";
  input.removeAttribute("list");
  for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"], ["aria-expanded", "false"], ["aria-controls", list.id]]) {
    input.setAttribute(name, value);
  }

  let found = [];
  let foundFor = "";  // The text before the caret that the suggestions continue.
  let active = -1;
  let timer = 0;
  let asking = new AbortController();

  const close = (said = "") => {
    clearTimeout(timer);
    asking.abort();
    found = [];
    show(said);
  };
  const show = (said) => {
    active = -1;
    list.replaceChildren(...found.map(option));
    list.hidden = found.length === 0;
    list.scrollTop = 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    input.removeAttribute("aria-activedescendant");
    status.textContent = said;
  };
  const deactivate = () => {
    list.children[active]?.setAttribute("aria-selected", "false");
    input.removeAttribute("aria-activedescendant");
    active = -1;
  };
  const activate = (index) => {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = (index + found.length) % found.length;
    const chosen = list.children[active];
    chosen.setAttribute("aria-selected", "true");
    chosen.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", chosen.id);
  };
  const beforeCaret = () => input.value.slice(0, input.selectionStart);
  const ask = async () => {
    clearTimeout(timer);
    asking.abort();
    asking = new AbortController();
    const before = beforeCaret();
    const address = new URL(input.dataset.suggest, location.href);
    address.searchParams.set("search", before);
    try {
      const answer = await fetch(address, { signal: asking.signal });
      if (!answer.ok) { close(); return; }
      const { suggestions } = await answer.json();
      if (beforeCaret() !== before || document.activeElement !== input) return;
      found = suggestions;
      foundFor = before;
      show(found.length === 0 ? "" : found.length === 1 ? "1 suggestion" : `${found.length} suggestions`);
    } catch (error) {
      // Unless a later question has replaced this one, the server is away: the box works without suggestions.
      if (error.name !== "AbortError") close();
    }
  };
  // Suggestions for another place in the text are of no use at this one: the caret may have moved since.
  const isCurrent = () => found.length > 0 && beforeCaret() === foundFor;
  const accept = (index) => {
    if (!isCurrent()) { ask(); return; }
    const { text, replaces } = found[index];
    const caret = input.selectionStart;
    const rest = input.value.slice(caret);
    const isWhole = !/[:.]$/.test(text);
    const before = input.value.slice(0, caret - replaces.length) + text + (isWhole && !/^\s/.test(rest) ? " " : "");
    input.value = before + rest;
    input.setSelectionRange(before.length, before.length);
    close(`${text} entered`);
    if (!isWhole) ask();
  };

  const askSoon = () => {
    deactivate();  // Enter sends the text that is there now.
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT_MILLISECONDS);
  };

  input.addEventListener("input", askSoon);
  for (const moved of ["keyup", "pointerup"]) {  // The caret may have moved.
    input.addEventListener(moved, () => { if (found.length && !isCurrent()) askSoon(); });
  }
  input.addEventListener("keydown", (event) => {
    if (event.isComposing || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (isCurrent()) activate(active < 0 && step < 0 ? found.length - 1 : active + step);
      else ask();
    } else if (event.key === "Enter" && active >= 0 && isCurrent()) {
      event.preventDefault();
      accept(active);
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
    }
  });
  input.addEventListener("blur", () => close());
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault();  // The focus stays in the box.
    const chosen = event.target.closest("[role=option]");
    if (chosen) accept([...list.children].indexOf(chosen));
  });
  showMistake(input);
}

function option({ text, help }, index) {
  const item = document.createElement("li");
  item.id = `suggestion-${index}`;
  item.setAttribute("role", "option");
  item.setAttribute("aria-selected", "false");
  const word = document.createElement("span");
  word.className = "mono";
  word.textContent = text;
  item.append(word);
  if (help) {
    const about = document.createElement("span");
    about.className = "quiet";
    about.textContent = ` ${help}`;
    item.append(about);
  }
  return item;
}

// Places the caret where a search is wrong; the server counts characters, the browser halves of some.
function showMistake(input) {
  if (input.dataset.mistake === undefined) return;
  const place = [...input.value].slice(0, Number(input.dataset.mistake)).join("").length;
  input.focus();
  input.setSelectionRange(place, place);
}
