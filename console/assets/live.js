// Keeps a page as its server sees it. Without it the page is as it was when it was loaded.
"use strict";

// Rows with an id are replaced one by one, so that a link or a box that has the focus keeps it, and what is chosen stays chosen.
function show(html) {
  const next = document.createElement("main");
  next.innerHTML = html;
  for (const part of next.querySelectorAll("[data-live]")) {
    const old = document.getElementById(part.id);
    if (!old) {
      continue;
    }
    if (old.children.length === part.children.length && [...part.children].every((c, i) => c.id && c.id === old.children[i].id)) {
      [...part.children].forEach((c, i) => replace(old.children[i], c));
    } else {
      replace(old, part);
    }
  }
  note();
}

function replace(old, next) {
  if (old.outerHTML === next.outerHTML) {
    return;
  }
  const name = (e) => e.getAttribute("href") || e.value;
  const focused = old.contains(document.activeElement) ? name(document.activeElement) : null;
  const chosen = new Set([...old.querySelectorAll("input:checked")].map(name));
  old.replaceWith(next);
  for (const e of next.querySelectorAll("a, input")) {
    if (chosen.has(name(e))) {
      e.checked = true;
    }
    if (focused && name(e) === focused) {
      e.focus();
    }
  }
}

// One box chooses all messages.
for (const head of document.querySelectorAll("[data-all]")) {
  const all = document.createElement("input");
  all.type = "checkbox";
  all.ariaLabel = "choose all";
  all.onchange = () => document.querySelectorAll(`input[form="${head.dataset.all}"]`).forEach((box) => { box.checked = all.checked; });
  head.prepend(all);
}

document.addEventListener("keydown", (e) => {
  const search = document.querySelector("input[type=search]");
  if (e.key === "/" && search && !e.ctrlKey && !e.metaKey && !e.altKey && !e.target.closest("input, select, textarea")) {
    e.preventDefault();
    search.focus();
    search.select();
  }
});

// The history of a lock while its page is open.
let who;
function note() {
  const history = document.getElementById("history");
  const now = document.querySelector("[data-who]");
  if (!history || !now || now.dataset.who === who) {
    return;
  }
  if (who !== undefined) {
    const line = document.createElement("li");
    line.textContent = new Date().toLocaleTimeString() + "  " + (now.dataset.who.trim() || "free");
    history.prepend(line);
    history.parentElement.hidden = false;
    while (history.children.length > 100) {
      history.lastChild.remove();
    }
  }
  who = now.dataset.who;
}

// Leases run down between two messages.
let last = performance.now();
setInterval(() => {
  const now = performance.now();
  for (const bar of document.querySelectorAll("progress")) {
    bar.value = Math.max(0, bar.value - (now - last));
    if (bar.nextElementSibling) {
      bar.nextElementSibling.textContent = (bar.value / 1000).toFixed(1) + "s";
    }
  }
  last = now;
}, 250);

note();
new EventSource("events?page=" + encodeURIComponent(document.body.dataset.self)).onmessage = (e) => show(e.data);
