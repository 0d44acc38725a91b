/* Draws the charts and tables of the page from the JSON in #data. Whatever comes from data is set as text, never as markup. */
"use strict";

const root = document.documentElement;
const data = JSON.parse(document.getElementById("data").textContent);

// Light or dark ------------------------------------------------------------------------------------------------------
const systemDark = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;
function paint() {
  root.dataset.theme = chosen || (systemDark.matches ? "dark" : "light");
  document.getElementById("theme").setAttribute("aria-pressed", root.dataset.theme === "dark");
}
systemDark.addEventListener("change", paint);
document.getElementById("theme").addEventListener("click", () => {
  chosen = root.dataset.theme === "dark" ? "light" : "dark";
  paint();
});
paint();

// Elements -----------------------------------------------------------------------------------------------------------
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  return made;
}

function percent(share, digits = 0) { // what is not quite none or all does not read so; the same as dissensus.words
  if (share === null || share === undefined) return "";
  const text = (100 * share).toFixed(digits);
  if ((share > 0 && Number(text) === 0) || (share < 1 && Number(text) === 100)) {
    if (digits < 1) return percent(share, 1);
    return share < 0.5 ? "less than 0.1\u00a0%" : "more than 99.9\u00a0%";
  }
  return `${text}\u00a0%`;
}

const count = (value, digits = 0) =>
  value === null || value === undefined ? "" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const palette = (code) => (code < 0 ? "var(--grey)" : `var(--c${(code % 8) + 1})`);

// Cells: how a value of each kind of column looks, by what it sorts, and what a search finds in it -------------------
const PICTURE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

function breakable(text) { // names such as a_b_c may break after each part
  const name = String(text ?? "");
  const parts = name.length < 16 ? [name] : name.split(/(?<=[_/.:-])/);
  return parts.flatMap((part, number) => (number ? [document.createElement("wbr"), part] : [part]));
}

const cells = {
  text: { draw: (td, v) => td.append(...breakable(v)), order: (v) => v, find: (v) => String(v ?? "") },
  long: {
    draw: (td, v) => {
      const box = element("div", "texts");
      for (const text of [v ?? ""].flat()) box.append(element("span", "cut", text));
      td.append(box);
    },
    order: (v) => [v].flat()[0],
    find: (v) => [v ?? ""].flat().join("\n"),
  },
  picture: {
    draw: (td, v, column, name) => {
      if (!PICTURE.test(v ?? "")) return;
      const image = element("img");
      image.src = v;
      image.alt = `item ${name}`;
      td.append(image);
    },
    order: () => null,
    find: () => "",
  },
  number: { draw: (td, v, column) => td.append(count(v, column.digits)), order: (v) => v, find: (v) => String(v ?? "") },
  percent: { draw: (td, v, column) => td.append(percent(v, column.digits)), order: (v) => v, find: () => "" },
  chips: {
    draw: (td, v) => {
      const chips = element("span", "chips");
      for (const name of v) {
        const chip = element("span", "chip", name);
        chip.dataset.name = name;
        chips.append(chip);
      }
      td.append(chips);
    },
    order: (v) => v.join(" ") || null,
    find: (v) => v.join(" "),
  },
  shares: {
    draw: (td, v) => {
      const box = element("div", "shares");
      const stack = element("div", "stack");
      for (const [, share, code] of v) {
        const part = element("i");
        part.style.width = `${100 * share}%`;
        part.style.setProperty("--part", palette(code));
        stack.append(part);
      }
      const words = element("small");
      words.append(...breakable(v.map(([name, share]) => `${name}: ${percent(share)}`).join(", ")));
      box.append(stack, words);
      td.append(box);
    },
    order: (v) => (v.length ? v[0][1] : null),
    find: (v) => v.map(([name]) => name).join(" "),
  },
  list: {
    draw: (td, v) => {
      const box = element("div", "shares");
      for (const [name, share, code] of v) {
        const line = element("div", "stack");
        const part = element("i");
        part.style.width = `${100 * share}%`;
        part.style.setProperty("--part", palette(code));
        line.append(part);
        box.append(line, element("small", "", `${name}: ${percent(share)}`));
      }
      td.append(box);
    },
    order: (v) => (v.length ? v[0][1] : null),
    find: (v) => v.map(([name]) => name).join(" "),
  },
  marked: {
    draw: (td, v) => {
      const box = element("div", "marked");
      for (const [text, label, code, sure] of v) {
        if (label === undefined) { box.append(text); continue; }
        const mark = element("mark", "", text);
        mark.style.setProperty("--part", palette(code));
        mark.append(element("small", "", ` ${label} ${percent(sure)}`));
        box.append(mark, " ");
      }
      td.append(box);
    },
    order: (v) => v.length,
    find: (v) => v.map(([text, label]) => `${text} ${label ?? ""}`).join(" "),
  },
  interval: {
    draw: (td, v) => {
      const [value, low, high] = v;
      if (value === null) return;
      const box = element("div", "interval");
      const line = element("span", "line");
      const range = element("i");
      range.style.left = `${100 * low}%`;
      range.style.width = `${100 * (high - low)}%`;
      const dot = element("b");
      dot.style.left = `${100 * value}%`;
      line.append(range, dot);
      box.append(line, element("small", "", `${percent(value)} (${percent(low)} to ${percent(high)})`));
      td.append(box);
    },
    order: (v) => v[0],
    find: () => "",
  },
};

// What opens beneath a row -------------------------------------------------------------------------------------------
const parts = {
  text: (part) => element("p", "", part.text),
  list: (part) => {
    const table = element("table");
    if (part.columns.some((name) => name)) {
      const head = table.createTHead().insertRow();
      for (const name of part.columns) head.append(element("th", "", name));
    }
    const body = table.createTBody();
    for (const row of part.rows) {
      const line = body.insertRow();
      for (const value of row) line.append(element("td", "", value ?? ""));
    }
    return table;
  },
  matrix: (part) => {
    const table = element("table");
    const head = table.createTHead().insertRow();
    head.append(element("td"));
    for (const name of part.columns) head.append(element("th", "", name));
    const body = table.createTBody();
    part.values.forEach((values, i) => {
      const line = body.insertRow();
      const behind = part.counts ? part.counts[i] : 1;
      if (behind < 1) line.className = "thin";
      line.append(element("th", "", part.rows[i]));
      values.forEach((share, j) => {
        const cell = element("td", "cell" + (share > 0.6 ? " dark" : "") + (i === j ? " diagonal" : ""), Math.round(100 * share));
        cell.style.setProperty("--share", share);
        cell.title = `${part.rows[i]} called ${part.columns[j]}: ${percent(share)}`;
        line.append(cell);
      });
      if (part.counts) line.append(element("td", "", `${count(behind)} items`));
    });
    return table;
  },
};

function details(list) {
  const box = element("div", "details");
  for (const part of list) {
    const one = element("div", "grid");
    if (part.title) one.append(element("h4", "", part.title));
    one.append(parts[part.type](part));
    if (part.note) one.append(element("small", "", part.note));
    box.append(one);
  }
  return box;
}

// Tables: searched, sorted, a page at a time -------------------------------------------------------------------------
const tables = {};

class Grid {
  constructor(figure, about) {
    this.figure = figure;
    this.about = about;
    this.rows = about.rows.map((_, number) => number);
    this.text = null;
    this.at = 0;
    this.sorted = null;
    this.opened = new Set();
    this.search = figure.querySelector("input");
    this.output = figure.querySelector("output");
    this.scroll = figure.querySelector(".scroll");
    this.pages = figure.querySelector(".pages");
    this.table = element("table");
    this.scroll.append(this.table);
    this.head();
    if (this.search) this.search.addEventListener("input", () => this.filter(this.search.value));
    this.draw();
  }

  head() {
    const line = this.table.createTHead().insertRow();
    this.about.columns.forEach((column, number) => {
      const th = element("th", "k-" + column.kind);
      th.scope = "col";
      const button = element("button", "", column.title);
      button.type = "button";
      button.addEventListener("click", () => this.sort(number));
      th.append(button);
      if (column.note) th.append(element("small", "", column.note));
      line.append(th);
    });
    const sorter = element("select", "sorter"); // where there is no room for a head
    sorter.setAttribute("aria-label", "Sort by");
    sorter.append(new Option("Sort by …", ""));
    this.about.columns.forEach((column, number) => sorter.append(new Option(column.title, number)));
    sorter.addEventListener("change", () => {
      this.sort(Number(sorter.value));
      sorter.value = ""; // so that the same column can be chosen again, for the other direction
    });
    if (this.search) this.search.after(sorter);
    else this.scroll.before(sorter);
  }

  find(number) {
    if (this.text === null) {
      this.text = this.about.rows.map((row) =>
        row.map((value, c) => cells[this.about.columns[c].kind].find(value)).join("\n").toLowerCase());
    }
    return this.text[number];
  }

  filter(wanted) {
    const words = wanted.toLowerCase().split(/\s+/).filter((word) => word);
    this.rows = this.about.rows.map((_, number) => number).filter((number) => words.every((word) => this.find(number).includes(word)));
    this.at = 0;
    if (this.sorted) this.arrange();
    this.draw();
  }

  sort(column) {
    const kind = this.about.columns[column].kind;
    const upFirst = kind !== "number" && kind !== "percent" && kind !== "shares"; // of reliability the lowest first
    const down = this.sorted && this.sorted.column === column ? !this.sorted.down : !upFirst;
    this.sorted = { column, down };
    this.arrange();
    this.at = 0;
    this.draw();
  }

  arrange() {
    const { column, down } = this.sorted;
    const order = cells[this.about.columns[column].kind].order;
    const key = (number) => order(this.about.rows[number][column]);
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || x === undefined || x === "") return y === null || y === undefined || y === "" ? a - b : 1; // what is not known comes last
      if (y === null || y === undefined || y === "") return -1;
      const sign = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return (down ? -sign : sign) || a - b;
    };
    this.rows.sort(compare);
  }

  open(number) {
    if (this.opened.has(number)) this.opened.delete(number);
    else this.opened.add(number);
    this.draw();
  }

  show(name) { // a row by what stands in its first column
    const number = this.about.rows.findIndex((row) => row[0] === name);
    if (number < 0) return;
    if (this.search) this.search.value = name;
    this.opened.add(number);
    this.filter(name);
    this.figure.scrollIntoView({ block: "start" });
  }

  draw() {
    const held = this.figure.contains(document.activeElement) && document.activeElement.dataset.key;
    const { columns, rows, details: more, page } = this.about;
    this.table.tHead.querySelectorAll("th").forEach((th, number) => {
      if (this.sorted && this.sorted.column === number) th.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
    const body = element("tbody");
    const n = this.rows.length;
    for (const number of this.rows.slice(this.at, this.at + page)) {
      const line = body.insertRow();
      columns.forEach((column, c) => {
        const td = element("td", "k-" + column.kind);
        td.dataset.label = column.title;
        if (c === 0 && more) {
          const button = element("button", "name");
          button.append(...breakable(rows[number][0]));
          button.type = "button";
          button.dataset.key = `row ${number}`;
          button.setAttribute("aria-expanded", this.opened.has(number));
          td.append(button);
        } else cells[column.kind].draw(td, rows[number][c], column, rows[number][0]);
        if (!td.textContent && !td.querySelector("img")) td.classList.add("empty");
        line.append(td);
      });
      if (!more) continue;
      line.classList.add("can-open");
      line.addEventListener("click", () => {
        if (!String(getSelection())) this.open(number); // who marks text to copy does not mean to open
      });
      if (this.opened.has(number)) {
        line.classList.add("open");
        const under = body.insertRow();
        under.className = "detail";
        const cell = under.insertCell();
        cell.colSpan = columns.length;
        cell.append(details(more[number]));
      }
    }
    if (this.table.tBodies.length) this.table.tBodies[0].replaceWith(body);
    else this.table.append(body);
    if (!n) {
      const cell = body.insertRow().insertCell();
      cell.colSpan = columns.length;
      cell.className = "nothing";
      cell.textContent = "Nothing found.";
    }
    if (this.output) this.output.textContent = n === rows.length ? `${count(n)} rows` : `${count(n)} of ${count(rows.length)} rows`;
    this.pages.replaceChildren();
    if (n > page) this.turns(n, page);
    if (held) this.figure.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus(); // it was drawn anew
  }

  turns(n, page) {
    const turn = (text, to, possible) => {
      const button = element("button", "", text);
      button.type = "button";
      button.dataset.key = text;
      button.disabled = !possible;
      button.addEventListener("click", () => {
        this.at = to;
        this.draw();
      });
      this.pages.append(button);
    };
    turn("‹ Back", Math.max(0, this.at - page), this.at > 0);
    this.pages.append(element("span", "", `${count(this.at + 1)} to ${count(Math.min(n, this.at + page))} of ${count(n)}`));
    turn("More ›", this.at + page, this.at + page < n);
  }
}

for (const figure of document.querySelectorAll("figure.table")) {
  tables[figure.dataset.table] = new Grid(figure, data.tables[figure.dataset.table]);
}

// Charts: colours are the style sheet's own, so that they follow it --------------------------------------------------
const config = {
  background: "transparent",
  font: "system-ui, 'Segoe UI', Roboto, sans-serif",
  view: { stroke: "transparent" },
  axis: {
    domainColor: "var(--line)", tickColor: "var(--line)", gridColor: "var(--line)", labelColor: "var(--soft)", titleColor: "var(--soft)",
    labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 150, titlePadding: 8, titleLimit: 300,
  },
  axisBand: { grid: false },
  legend: { labelColor: "var(--soft)", titleColor: "var(--soft)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 260, symbolOpacity: 1 },
  mark: { color: "var(--c1)" },
  bar: { color: "var(--c1)" },
  line: { color: "var(--c1)" },
  rule: { color: "var(--c1)" },
  point: { color: "var(--c1)" },
  range: {
    category: ["var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)", "var(--c7)", "var(--c8)"],
    heatmap: { scheme: "viridis" },
    ramp: { scheme: "viridis" },
  },
};

const NARROW = 420; // pixels

function fitted(value, width) { // a chart for a phone: legends with one entry per line, short labels beside the axes
  if (width >= NARROW || value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map((one) => fitted(one, width));
  const result = {};
  for (const [key, one] of Object.entries(value)) {
    if (key === "values") result[key] = one;
    else if (key === "legend" && one) result[key] = { ...one, columns: 1, labelLimit: width - 90 };
    else if (key === "titleLimit") result[key] = width - 70;
    else if (key === "labelLimit") result[key] = Math.min(one, width / 3.5);
    else result[key] = fitted(one, width);
  }
  return result;
}

async function drawCharts() {
  for (const [id, spec] of Object.entries(data.charts)) {
    const place = document.getElementById(id);
    try {
      const width = place.clientWidth;
      const options = { renderer: "svg", actions: false, ast: true, defaultStyle: false, config: fitted(config, width), tooltip: { theme: "custom" } };
      const { view } = await window.drawChart(place, fitted(spec, width), options);
      const opens = spec.usermeta && spec.usermeta.opens;
      if (opens) {
        view.addEventListener("click", (_, item) => {
          if (item && item.datum) tables[opens.table].show(item.datum[opens.field]);
        });
      }
      place.dataset.drawn = "yes";
    } catch (error) {
      place.append(element("p", "failed", `This chart could not be drawn: ${error.message}`));
      console.error(error);
    }
  }
  root.dataset.drawn = "yes";
}

// Where the reader is ------------------------------------------------------------------------------------------------
const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
const watch = new IntersectionObserver(
  (seen) => {
    for (const one of seen) if (links.has(one.target.id)) links.get(one.target.id).classList.toggle("here", one.isIntersecting);
  },
  { rootMargin: "-30% 0px -65% 0px" },
);
document.querySelectorAll("section").forEach((section) => watch.observe(section));

addEventListener("DOMContentLoaded", drawCharts); // the bundle of Vega, a module, has run by then
