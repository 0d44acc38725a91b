/* Draw the charts and tables of the page from the JSON in #data. */
const data = JSON.parse($("data").textContent);

function percent(share, digits = 0) { // Like `format_percent` of Python: a share that is not quite 0 or 1 is not rounded to 0 or 100 %.
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

// Cells: how each kind of column draws a value, sorts by it, and searches in it ---------------------------------------
const PICTURE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

function breakable(text) { // Names such as a_b_c may break after each part.
  const name = String(text ?? "");
  const parts = name.length < 16 ? [name] : name.split(/(?<=[_/.:-])/);
  return parts.flatMap((part, number) => (number ? [h("wbr"), part] : [part]));
}

const stack = (parts) => h("div", { class: "stack" }, parts.map(([, share, code]) => h("i", { ":width": `${100 * share}%`, "--part": palette(code) })));
const said = ([name, share]) => `${name}: ${percent(share)}`;
const same = (v) => v;
const nothing = () => "";
const asText = (v) => String(v ?? "");
const byFirst = { order: (v) => (v.length ? v[0][1] : null), find: (v) => v.map(([name]) => name).join(" ") };

const cells = {
  text: { draw: breakable, order: same, find: asText },
  long: {
    draw: (v) => h("div", { class: "texts" }, [v ?? ""].flat().map((text) => h("span", { class: "cut" }, text))),
    order: (v) => [v].flat()[0],
    find: (v) => [v ?? ""].flat().join("\n"),
  },
  picture: { draw: (v, column, name) => PICTURE.test(v ?? "") && h("img", { src: v, alt: `item ${name}` }), order: () => null, find: nothing },
  number: { draw: (v, column) => count(v, column.digits), order: same, find: asText },
  percent: { draw: (v, column) => percent(v, column.digits), order: same, find: nothing },
  chips: {
    draw: (v) => h("span", { class: "chips" }, v.map((name) => h("span", { class: "chip", "data-name": name }, name))),
    order: (v) => v.join(" ") || null,
    find: (v) => v.join(" "),
  },
  shares: { draw: (v) => h("div", { class: "shares" }, stack(v), h("small", {}, breakable(v.map(said).join(", ")))), ...byFirst },
  list: { draw: (v) => h("div", { class: "shares" }, v.map((one) => [stack([one]), h("small", {}, said(one))])), ...byFirst },
  marked: {
    draw: (v) => h("div", { class: "marked" }, v.map(([text, label, code, sure]) =>
      label === undefined ? text : [h("mark", { "--part": palette(code) }, text, h("small", {}, ` ${label} ${percent(sure)}`)), " "])),
    order: (v) => v.length,
    find: (v) => v.map(([text, label]) => `${text} ${label ?? ""}`).join(" "),
  },
  interval: {
    draw: ([value, low, high]) => value !== null && h("div", { class: "interval" },
      h("span", { class: "line" }, h("i", { ":left": `${100 * low}%`, ":width": `${100 * (high - low)}%` }), h("b", { ":left": `${100 * value}%` })),
      h("small", {}, `${percent(value)} (${percent(low)} to ${percent(high)})`)),
    order: (v) => v[0],
    find: nothing,
  },
};

// Details that open below a row ---------------------------------------------------------------------------------------
const heads = (names) => names.map((name) => h("th", {}, name));
const parts = {
  text: (part) => h("p", {}, part.text),
  list: (part) => h("table", {},
    part.columns.some(same) && h("thead", {}, h("tr", {}, heads(part.columns))),
    h("tbody", {}, part.rows.map((row) => h("tr", {}, row.map((value) => h("td", {}, value)))))),
  matrix: (part) => h("table", {},
    h("thead", {}, h("tr", {}, h("td"), heads(part.columns))),
    h("tbody", {}, part.values.map((values, i) => h("tr", { class: part.counts && part.counts[i] < 1 && "thin" },
      h("th", {}, part.rows[i]),
      values.map((share, j) => h("td", {
        class: "cell" + (share > 0.6 ? " dark" : "") + (i === j ? " diagonal" : ""), "--share": share,
        title: `${part.rows[i]} labelled ${part.columns[j]}: ${percent(share)}`,
      }, Math.round(100 * share))),
      part.counts && h("td", {}, `${count(part.counts[i])} items`))))),
};

const details = (list) => h("div", { class: "details" }, list.map((part) => h("div", { class: "grid" },
  part.title && h("h4", {}, part.title), parts[part.type](part), part.note && h("small", {}, part.note))));

// Tables, with search, sorting and pages ------------------------------------------------------------------------------
const tables = {};
const unknown = (v) => v === null || v === undefined || v === "";

class Grid {
  constructor(figure, about) {
    Object.assign(this, { figure, about, text: null, at: 0, sorted: null, opened: new Set() });
    this.rows = about.rows.map((_, number) => number);
    this.search = figure.querySelector("input");
    this.output = figure.querySelector("output");
    this.pages = figure.querySelector(".pages");
    this.heads = about.columns.map((column, number) => h("th", { class: "k-" + column.kind, scope: "col" },
      h("button", { type: "button", onclick: () => this.sort(number) }, column.title), column.note && h("small", {}, column.note)));
    this.body = h("tbody");
    const scroll = figure.querySelector(".scroll");
    scroll.append(h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body));
    const sorter = h("select", { class: "sorter", "aria-label": "Sort by" }, new Option("Sort by …", ""), about.columns.map((column, number) => new Option(column.title, number)));
    sorter.addEventListener("change", () => { // On narrow screens, this replaces the column titles.
      this.sort(Number(sorter.value));
      sorter.value = ""; // The same column can then be chosen again, to reverse the order.
    });
    if (this.search) {
      this.search.after(sorter);
      this.search.addEventListener("input", () => this.filter(this.search.value));
    } else scroll.before(sorter);
    this.draw();
  }

  filter(wanted) {
    this.text ??= this.about.rows.map((row) => row.map((value, c) => cells[this.about.columns[c].kind].find(value)).join("\n").toLowerCase());
    const words = wanted.toLowerCase().split(/\s+/).filter(same);
    this.rows = this.about.rows.map((_, number) => number).filter((number) => words.every((word) => this.text[number].includes(word)));
    this.at = 0;
    if (this.sorted) this.arrange();
    this.draw();
  }

  sort(column) {
    const downFirst = ["number", "percent", "shares"].includes(this.about.columns[column].kind); // Other columns, such as reliability, begin with the lowest value.
    this.sorted = { column, down: this.sorted?.column === column ? !this.sorted.down : downFirst };
    this.arrange();
    this.at = 0;
    this.draw();
  }

  arrange() {
    const { column, down } = this.sorted;
    const key = (number) => cells[this.about.columns[column].kind].order(this.about.rows[number][column]);
    this.rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (unknown(x)) return unknown(y) ? a - b : 1; // Unknown values come last.
      if (unknown(y)) return -1;
      const sign = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return (down ? -sign : sign) || a - b;
    });
  }

  open(number) {
    if (!this.opened.delete(number)) this.opened.add(number);
    this.draw();
  }

  show(name) { // Open the row with this name in its first column.
    const number = this.about.rows.findIndex((row) => row[0] === name);
    if (number < 0) return;
    if (this.search) this.search.value = name;
    this.opened.add(number);
    this.filter(name);
    this.figure.scrollIntoView({ block: "start" });
  }

  cell(number, column, c) {
    const row = this.about.rows[number], opens = c === 0 && this.about.details;
    const td = h("td", { class: "k-" + column.kind, "data-label": column.title }, opens
      ? h("button", { class: "name", type: "button", "data-key": `row ${number}`, "aria-expanded": String(this.opened.has(number)) }, breakable(row[0]))
      : cells[column.kind].draw(row[c], column, row[0]));
    if (!td.textContent && !td.querySelector("img")) td.classList.add("empty");
    return td;
  }

  line(number) {
    const { columns, details: more } = this.about, row = columns.map((column, c) => this.cell(number, column, c));
    if (!more) return h("tr", {}, row);
    const open = this.opened.has(number);
    const toggle = () => { if (!String(getSelection())) this.open(number); }; // Selecting text to copy it does not open the row.
    return [h("tr", { class: "can-open" + (open ? " open" : ""), onclick: toggle }, row),
      open && h("tr", { class: "detail" }, h("td", { colspan: columns.length }, details(more[number])))];
  }

  draw() {
    const held = this.figure.contains(document.activeElement) && document.activeElement.dataset.key;
    const { columns, rows, page } = this.about, n = this.rows.length;
    this.heads.forEach((th, number) => {
      if (this.sorted?.column === number) th.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
    const lines = this.rows.slice(this.at, this.at + page).flatMap((number) => this.line(number)).filter(same);
    this.body.replaceChildren(...(n ? lines : [h("tr", {}, h("td", { colspan: columns.length, class: "nothing" }, "No rows match the search."))]));
    if (this.output) this.output.textContent = n === rows.length ? `${count(n)} rows` : `${count(n)} of ${count(rows.length)} rows`;
    const turn = (text, to, possible) => h("button", { type: "button", "data-key": text, disabled: !possible, onclick: () => { this.at = to; this.draw(); } }, text);
    this.pages.replaceChildren(...(n <= page ? [] : [
      turn("‹ Back", Math.max(0, this.at - page), this.at > 0),
      h("span", {}, `${count(this.at + 1)} to ${count(Math.min(n, this.at + page))} of ${count(n)}`),
      turn("More ›", this.at + page, this.at + page < n)]));
    if (held) this.figure.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus(); // The focused button was replaced.
  }
}

for (const figure of document.querySelectorAll("figure.table")) {
  tables[figure.dataset.table] = new Grid(figure, data.tables[figure.dataset.table]);
}

// Charts, in the colours of the style sheet ---------------------------------------------------------------------------
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
  ...Object.fromEntries(["mark", "bar", "line", "rule", "point"].map((name) => [name, { color: "var(--c1)" }])),
  range: {
    category: [0, 1, 2, 3, 4, 5, 6, 7].map(palette),
    heatmap: { scheme: "viridis" },
    ramp: { scheme: "viridis" },
  },
};

const NARROW = 420; // pixels

function fitted(value, width) { // On phones, legends have one entry per line and axes have short labels.
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
    const place = $(id);
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
      place.append(h("p", { class: "failed" }, `This chart could not be drawn: ${error.message}`));
      console.error(error);
    }
  }
  root.dataset.drawn = "yes";
}

// Mark the section that is being read in the navigation ---------------------------------------------------------------
const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
const watch = new IntersectionObserver(
  (seen) => {
    for (const one of seen) if (links.has(one.target.id)) links.get(one.target.id).classList.toggle("here", one.isIntersecting);
  },
  { rootMargin: "-30% 0px -65% 0px" },
);
document.querySelectorAll("section").forEach((section) => watch.observe(section));

addEventListener("DOMContentLoaded", drawCharts); // The bundle of Vega is a module, which has run by then.
