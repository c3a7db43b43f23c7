// Keys: / find, f filter, j k move, Enter open, Esc close and go back.

const PARENTS = { "/queue": "/", "/dead-letters": "/" };

const rows = () => [...document.querySelectorAll("[data-row] a[data-open]")];

export function listenToKeys({ go }) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey) return;
    if (event.target.closest?.("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const act = ACTIONS[event.key];
    if (act?.({ go }) !== undefined) event.preventDefault();
  });
}

const ACTIONS = {
  "/": () => focus("#find"),
  f: () => focus("[data-filter]"),
  j: () => move(1),
  k: () => move(-1),
  Escape: ({ go }) => {
    if (document.activeElement?.closest("[data-row]")) return document.activeElement.blur() ?? true;
    const parent = location.pathname === "/message" ? `/queue?${new URLSearchParams({ q: new URLSearchParams(location.search).get("q") ?? "" })}` : PARENTS[location.pathname];
    if (!parent) return undefined;
    go(parent);
    return true;
  },
};

function focus(selector) {
  const element = document.querySelector(selector);
  if (!element) return undefined;
  element.focus();
  element.select?.();
  return true;
}

function move(step) {
  const all = rows();
  if (all.length === 0) return undefined;
  const here = all.indexOf(document.activeElement);
  const next = all[here === -1 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, here + step))];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  return true;
}
