/* Code that the report and the page of `dissensus serve` share. Data is only set as text, never as markup. */
"use strict";

const root = document.documentElement;
const $ = (id) => document.getElementById(id);

// Make an element with attributes, "on…" listeners and "--…" or ":…" style properties; null and false are skipped.
function h(tag, more = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(more)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) made.style.setProperty(key, value);
    else if (key.startsWith(":")) made.style.setProperty(key.slice(1), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside.flat(3).filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

// Switch between light and dark colours.
const systemDark = matchMedia("(prefers-color-scheme: dark)");
let theme = null;
function paint() {
  root.dataset.theme = theme || (systemDark.matches ? "dark" : "light");
  $("theme").setAttribute("aria-pressed", root.dataset.theme === "dark");
}
systemDark.addEventListener("change", paint);
$("theme").addEventListener("click", () => { theme = root.dataset.theme === "dark" ? "light" : "dark"; paint(); });
paint();
