// Elements that are changed only where they differ, so that nothing flickers, and neither focus nor
// selection is lost. Texts of the cluster are only ever set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(made, name, value);
  made.append(...children);
  return made;
}

export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// null and false remove it.
export function setAttribute(target, name, value) {
  if (value === null || value === undefined || value === false) {
    if (target.hasAttribute(name)) target.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (target.getAttribute(name) !== text) target.setAttribute(name, text);
}

export function setWidth(target, percent) {
  const width = `${Math.max(0, percent).toFixed(3)}%`;
  if (target.dataset.width === width) return;
  target.dataset.width = width;
  target.style.width = width;
}

// Lets `parent` have one child for each item, in their order: those that stay are kept.
export function keyed(parent, items, keyOf, create, update) {
  const known = parent.childrenByKey ?? new Map();
  const next = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    if (next.has(key)) continue;
    const child = known.get(key) ?? create(item);
    update(child, item);
    next.set(key, child);
    if (child === place) place = place.nextSibling;
    else parent.insertBefore(child, place);
  }
  for (const [key, child] of known) if (next.get(key) !== child) child.remove();
  parent.childrenByKey = next;
}
