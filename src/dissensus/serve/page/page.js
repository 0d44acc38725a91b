/* The page of `dissensus serve`; nothing is loaded from other servers. */
const state = { me: null, projects: [], project: null, view: "", history: [], skipped: new Set(), case: null, chosen: null };

const count = (value) => (value ?? 0).toLocaleString("en");
const things = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(100 * share)}\u00a0%`);
const show = (...inside) => $("main").replaceChildren(...inside.flat().filter(Boolean));
const tell = (text) => { $("said").textContent = text; };

// The service --------------------------------------------------------------------------------------------------------
async function ask(path, method = "GET", body = undefined) {
  let answer;
  try {
    answer = await fetch(path, {
      method, credentials: "same-origin", ...(body === undefined ? {} : { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }),
    });
  } catch {
    throw Object.assign(new Error("The service does not respond. Is it still running?"), { retry: true });
  }
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  const said = { 401: "Please sign in.", 403: "Your token does not allow this. Ask an admin for another one.", 429: "Too many requests. Please wait a moment." };
  throw Object.assign(new Error(told.error || said[answer.status] || `The service responded with status ${answer.status}.`), { status: answer.status, retry: answer.status >= 429 });
}
const of = (path) => `projects/${encodeURIComponent(state.project.name)}/${path}`;
const decoded = (part) => { try { return decodeURIComponent(part); } catch { return part; } }; // A hash that was typed may be malformed.
const itemPath = (item) => item.split("/").map(encodeURIComponent).join(/(^|\/)\.\.?(\/|$)/.test(item) ? "%2F" : "/"); // A browser would resolve ../

function complain(error, again) {
  if (error.status === 401) return signIn();
  $("alert").replaceChildren(error.message, again && error.retry ? h("button", { type: "button", onclick: again }, "Try again") : "");
}

// Views --------------------------------------------------------------------------------------------------------------
const VIEWS = { overview: ["Overview", overview], annotators: ["Annotators", annotators], queue: ["Queue", queue], adjudicate: ["Adjudicate", adjudicate] };
const NEEDS = { overview: "progress", annotators: "annotators", queue: "items", adjudicate: "decide" }; // of `me.may`

async function route() {
  $("alert").replaceChildren();
  try {
    state.me = state.me ?? (await ask("me"));
    $("sign-out").hidden = !(state.me.tokens && state.me.signed_in);
    if (!state.me.signed_in) return signIn();
    state.projects = await ask("projects");
    const [, project, view, item] = location.hash.split("/").map(decoded);
    const name = state.projects.some((one) => one.name === project) ? project : state.projects[0]?.name;
    if (!name) return show(h("h1", {}, "No project yet"), h("p", {}, "Projects are created through the ", h("a", { href: "docs" }, "API"), ", from Label Studio or Argilla, or from the files of a watched folder."));
    if (state.project?.name !== name) Object.assign(state, { project: { name }, history: [], skipped: new Set() });
    state.project = { ...state.project, ...(await ask(`projects/${encodeURIComponent(name)}`)) };
    const open = Object.keys(VIEWS).filter((one) => state.me.permissions.includes(NEEDS[one]));
    if (!open.length) return show(h("h1", {}, "No access to this page"), h("p", {}, `Your token has the role ${state.me.role}, which can only send labels. Ask for a token with the role read or adjudicate.`));
    state.view = open.includes(view) ? view : open[0];
    navigation(name, open);
    document.title = `${VIEWS[state.view][0]} – ${state.project.title || name}`;
    await VIEWS[state.view][1](item);
    root.dataset.drawn = state.view;
  } catch (error) { complain(error, route); }
}

function navigation(name, open) {
  const link = (view) => `#/${encodeURIComponent(name)}/${view}`;
  document.querySelector("nav").replaceChildren(...open.map((view) => h("a", { href: link(view), "aria-current": view === state.view && "page" }, VIEWS[view][0])));
  const select = $("projects");
  select.hidden = state.projects.length < 2;
  select.replaceChildren(...state.projects.map((one) => h("option", { value: one.name, selected: one.name === name }, one.title || one.name)));
  select.onchange = () => { location.hash = `#/${encodeURIComponent(select.value)}/${state.view}`; };
}

function signIn() {
  document.querySelector("nav").replaceChildren();
  const token = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  show(h("h1", {}, "Sign in"), h("form", { class: "sign-in", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await ask("sign-in", "POST", { token: token.value });
      state.me = null;
      route();
    } catch (error) { $("alert").replaceChildren(error.status === 401 ? "This token is unknown or was revoked." : error.message); token.select(); }
  } }, h("input", { type: "text", autocomplete: "username", value: "token", hidden: true }), h("label", { for: "token" }, "Your token"), token, h("p", { class: "about" }, "The person who runs the service can create a token for you."), h("button", { type: "submit" }, "Sign in")));
  token.focus();
}
$("sign-out").addEventListener("click", async () => { await ask("sign-out", "POST").catch(complain); state.me = null; route(); });

const number = (name, value, note) => h("div", { class: "number" }, h("dt", {}, name), h("dd", { class: "value" }, value), note && h("dd", { class: "note" }, note));
const change = ([now, before], write) => (now === null ? "unknown" : before === null ? "no value a week ago" : `${write(before)} a week ago`);
const hasClasses = () => ["classes", "graded"].includes(state.project.kind);
const untested = () => (hasClasses() ? "Not tested yet: there are no labels from a week ago to compare with." : "Not tested: the test needs labels that are classes.");

function svg(name, className, values, draw) {
  const NS = "http://www.w3.org/2000/svg";
  const made = document.createElementNS(NS, "svg");
  for (const [key, value] of Object.entries({ class: className, viewBox: `0 0 ${Math.max(values.length, 2)} 1`, preserveAspectRatio: "none", role: "img", "aria-label": name })) made.setAttribute(key, value);
  for (const [tag, attributes] of draw) {
    const part = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    made.append(part);
  }
  return made;
}
const bars = (name, values) => svg(name, "plot", values, values.map((v, x) => ["rect", { x: x + 0.1, width: 0.8, y: 1 - v / Math.max(...values, 1), height: v / Math.max(...values, 1) }]));
function line(name, values, className = "plot") { // Days without a value are skipped.
  const points = values.flatMap((v, x) => (v === null || v === undefined ? [] : [`${x + 0.5},${0.96 - 0.92 * v}`]));
  if (points.length === 1) points.push(points[0].replace(/^[\d.]+/, (x) => Number(x) + 0.3));
  return svg(name, className, values, [["polyline", { points: points.join(" ") }]]);
}

async function overview() {
  const [{ counts }, told] = await Promise.all([ask(of("items?limit=0")), ask(of("progress"))]);
  const { days, week } = told, all = counts.all, few = counts.unsettled - counts.queue;
  const drifting = told.annotators.filter((one) => one.drifts);
  const head = [h("h1", {}, state.project.title || state.project.name)];
  if (!all) return show(head, h("p", {}, "No labels have arrived yet."));
  const figure = (title, drawing, ends, caption) => h("figure", {}, h("h3", {}, title), drawing, h("div", { class: "ends" }, ...ends.map((one) => h("span", {}, one))), h("figcaption", {}, caption));
  const ends = [days[0].day, days.at(-1).day];
  show(head, h("p", { class: "headline" }, `Of ${things(all, "item")}, ${count(counts.settled)} are settled and ${count(counts.decided)} decided. ${count(counts.queue)} need a decision${few ? `, and ${count(few)} more labels` : ""}.`),
    h("dl", { class: "numbers" },
      number("settled or decided", percent(week.settled[0] ?? (counts.settled + counts.decided) / all), change(week.settled, percent)),
      number("in the queue", count(counts.queue), change(week.queue, count)),
      number("truly split", count(counts["truly split"]), "annotators disagree more than by mistakes alone"),
      number("new labels in 7 days", count(week.labels[0]), `${count(week.labels[1])} in the 7 days before`),
      number("agreement of two labels", percent(week.agreement[0]), change(week.agreement, percent))),
    h("p", {}, state.me.permissions.includes("decide") && counts.queue > 0 && h("a", { class: "button", href: `#/${encodeURIComponent(state.project.name)}/adjudicate` }, "Decide items in the queue"), state.me.permissions.includes("report") && [" ", h("a", { href: of("report") }, "Report"), " · ", h("a", { href: of("export?content=items&format=csv"), download: true }, "Labels as CSV")]),
    h("section", {}, h("h2", {}, "Annotators whose agreement changed"), drifting.length
      ? h("ul", { class: "findings" }, ...drifting.map((one) => h("li", { class: "bad" }, h("span", { class: "mark", "aria-hidden": "true" }, "!"), h("span", {}, `${one.annotator} ${one.sentence}`))))
      : h("p", { class: "question" }, told.drift_tested ? "No annotator's agreement with the others changed this week more than that of all others." : untested())),
    h("section", { class: "row" },
      figure("Labels per day", bars(`Labels per day: ${days.map((one) => `${one.day} ${one.labels}`).join(", ")}`, days.map((one) => one.labels)), ends, `Bars: labels on each day; at most ${count(Math.max(...days.map((one) => one.labels)))} on one day.`),
      days.some((one) => one.settled !== null) && figure("Share of settled items", line(`Settled: ${days.map((one) => `${one.day} ${percent(one.settled)}`).join(", ")}`, days.map((one) => one.settled)), ends, "Vertical axis from 0 to 100 %. Past days are evaluated with today's knowledge about the annotators.")));
}

const table = (title, caption, heads, rows, none) => h("figure", { class: "table" }, h("h3", {}, title), h("figcaption", {}, rows.length ? caption : none), rows.length > 0 && h("div", { class: "scroll" }, h("table", {},
  h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
  h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { "data-label": heads[at] }, cell))))))));

async function annotators() {
  const [all, told] = await Promise.all([ask(of("annotators")), ask(of("progress"))]);
  const over = new Map(told.annotators.map((one) => [one.annotator, one]));
  const rows = all.map((one) => {
    const time = over.get(one.annotator) ?? { days: [], agreement: [null, null] };
    const days = time.days.map((day) => day.agreement);
    const flags = [one.flags ?? []].flat().join(", ");
    return [one.annotator, count(one.labels), percent(one.reliability), days.some((v) => v !== null) ? line(`Agreement with the others, ${time.days.length} days: ${days.map(percent).join(", ")}`, days, "spark") : "",
      h("span", { class: "whole" }, `${percent(time.agreement[0])} (before: ${percent(time.agreement[1])})`), h("span", { class: time.drifts || flags ? "alarm" : "" }, [time.drifts ? `${one.annotator} ${time.sentence}` : "", flags && `Labels are ${flags}.`].filter(Boolean).join(" ") || (hasClasses() ? "not flagged" : "not tested"))];
  });
  show(h("h1", {}, "Annotators"), h("p", { class: "question" }, "Agreement is measured with the other annotators' labels of the same items. An annotator who agrees less may know something that the others do not: show examples, and ask."),
    table("All annotators", hasClasses() ? "The last column is the result of a statistical test; 5 % of the annotators that it names are expected to be named by chance." : untested(), ["annotator", "labels", "reliability", "agreement by day", "agreement this week", "findings"], rows, "No labels have arrived yet."));
}

async function queue() {
  const told = await ask(of("items?status=queue&limit=200"));
  const rows = told.items.map((one) => [h("a", { href: `#/${encodeURIComponent(state.project.name)}/adjudicate/${encodeURIComponent(one.item)}` }, one.item), spell(one.label), percent(one.confidence), Object.entries(one.votes ?? {}).map(([name, n]) => `${name} ${n}`).join(", "), `${one.status}: ${one.reason ?? ""}`]);
  show(h("h1", {}, "Queue"), table(`${things(told.total, "item")} to decide`, told.total > rows.length ? `The ${rows.length} items with the lowest confidence are listed.` : "Items with the lowest confidence first.", ["item", "label so far", "confidence", "votes", "reason"], rows, "The queue is empty: every item with two or more labels is settled or decided."));
}

// Adjudication -------------------------------------------------------------------------------------------------------
const FIXED = ["classes", "graded", "pairs"]; // Label types whose choices are the same for all items, at the same keys.
const spell = (label) => (label === null || label === undefined ? "" : !Array.isArray(label) ? String(label) : label.length === 0 ? "none" : label.map((one) => (typeof one === "string" ? one : `${one.label} ${one.start}–${one.end}`)).join(", "));
const key = (label) => JSON.stringify(Array.isArray(label) ? label.map((one) => (typeof one === "string" ? one : [one.start, one.end, one.label])) : label);

const isFixed = () => FIXED.includes(state.project.kind) && state.project.classes.length <= 10;

function choices(one) {
  const found = new Map();
  const add = (label) => found.get(key(label)) ?? found.set(key(label), { label, who: [], p: null }).get(key(label));
  const fixed = isFixed(), digits = fixed && state.project.classes.every((name) => /^\d$/.test(name));
  if (fixed) state.project.classes.forEach(add);
  for (const row of one.annotations) add(row.label).who.push(row.annotator);
  if (one.label !== null && one.label !== undefined) add(one.label);
  const all = [...found.values()];
  if (!fixed) all.sort((a, b) => b.who.length - a.who.length);
  for (const each of all) each.p = one.probabilities?.[each.label] ?? (key(each.label) === key(one.label) ? one.confidence : null);
  all.forEach((each, at) => { each.key = digits ? each.label : String((at + 1) % 10); }); // A class that is a digit gets its own key.
  return all.slice(0, 10);
}

const PICTURE = /^(data:image\/(png|jpeg|gif|webp);base64,|(https?:\/\/|\/)\S+\.(png|jpe?g|gif|webp|svg)(\?\S*)?$)/i;
function marked(text, spans) { // Offsets count characters, some of which are two units in JavaScript.
  const letters = Array.from(text), parts = [];
  let at = 0;
  for (const { start, end, label } of [...spans].sort((a, b) => a.start - b.start || a.end - b.end)) {
    if (start < at) { parts.push(h("sub", {}, ` ${label} ${start}–${end} `)); continue; } // It overlaps the previous span.
    parts.push(letters.slice(at, start).join(""), h("mark", { "--part": `var(--c${([...new Set(state.project.classes)].indexOf(label) + 8) % 8 + 1})` }, letters.slice(start, end).join(""), h("sub", {}, label)));
    at = end;
  }
  return [...parts, letters.slice(at).join("")];
}
const isSpans = (label) => Array.isArray(label) && (state.project.kind === "spans" || typeof label[0] === "object");
const textOf = (data) => data.text ?? Object.values(data).find((one) => typeof one === "string" && !PICTURE.test(one));

async function nextItem(wanted) {
  const skip = new Set([...state.skipped, ...state.history.map((one) => one.item)]);
  const told = await ask(of(`items?status=queue&limit=${skip.size + 1}`));
  state.left = told.total;
  return wanted ? ask(of(`items/${itemPath(wanted)}`)) : (told.items.find((one) => !skip.has(one.item)) ?? null);
}

async function adjudicate(wanted) {
  state.case = await nextItem(wanted || undefined);
  state.chosen = null;
  drawCase();
}

function drawCase() {
  const one = state.case;
  if (!one) {
    const skipped = state.skipped.size;
    return show(h("h1", {}, "The queue is empty"), h("p", {}, skipped ? `Only the items that you skipped are left: ${things(skipped, "item")}.` : "Every item with two or more labels is settled or decided."),
      h("p", { class: "deeds" }, skipped > 0 && h("button", { type: "button", onclick: () => { state.skipped.clear(); state.history = state.history.filter((deed) => !deed.skip); advance(); } }, "Show skipped items"), deed("z", "Undo the last step", undo, !state.history.length)));
  }
  const all = (state.case.choices ??= choices(one)), n = one.annotations.length, text = textOf(one.data ?? {});
  const button = (choice, at) => h("li", {}, h("button", { type: "button", class: "choice", "aria-keyshortcuts": choice.key, "aria-pressed": state.chosen ? String(state.chosen.has(at)) : undefined, "--share": choice.p === null ? undefined : `${100 * choice.p}%`, onclick: () => pick(at) },
    h("kbd", { "aria-hidden": "true" }, choice.key), h("span", { class: "said" }, isSpans(choice.label) && text ? marked(text, choice.label) : spell(choice.label)),
    h("span", {}, [choice.who.length && `${choice.who.length} of ${n}`, choice.p !== null && percent(choice.p)].filter(Boolean).join(" · ")),
    choice.who.length > 0 && h("small", {}, choice.who.filter(Boolean).join(", "))));
  const note = h("textarea", { id: "note", rows: 2, "aria-keyshortcuts": "n", placeholder: "Reason, or what the guideline should say" });
  note.value = one.note ?? "";
  note.addEventListener("input", () => { one.note = note.value; });
  show(h("h1", {}, one.item), h("p", { class: "question" }, `${count(state.left)} in the queue. ${one.decision ? "This item is already decided; a new decision replaces the old one." : `This one: ${[one.status, one.reason].filter(Boolean).join(", ")}.`}`),
    h("div", { class: "case" },
      h("section", { class: "shows", "aria-label": "Item" }, Object.entries(one.data ?? {}).filter(([, value]) => value !== null && value !== "").map(([name, value]) => h("div", { class: "shown" }, h("small", {}, name),
        PICTURE.test(value) ? h("img", { src: value, alt: `${name} of ${one.item}` }) : isSpans(one.label) && value === text ? marked(text, one.label) : typeof value === "string" ? value : JSON.stringify(value))),
        Object.keys(one.data ?? {}).length === 0 && h("p", { class: "nothing" }, "The service has no text or picture of this item.")),
      h("section", { "aria-label": "Decide" }, state.chosen && h("p", { class: "strong" }, "Press the numbers of all correct labels, then Enter."), h("ol", { class: "choices" }, all.map(button)), another(one),
        h("div", { class: "deeds" }, deed("b", state.chosen ? "Enter: these are correct" : "Both are correct", both), deed("u", "Guideline is unclear", () => decide({ unclear: true }, "unclear")), deed("s", "Skip", skip), deed("z", "Undo", undo, !state.history.length)),
        h("label", {}, h("span", {}, "Note ", h("kbd", { "aria-hidden": "true" }, "n")), note))));
}

const deed = (name, words, act, disabled = false) => h("button", { type: "button", "aria-keyshortcuts": name, disabled, onclick: act }, h("kbd", { "aria-hidden": "true" }, name), ` ${words}`);

function another(one) { // An answer that no annotator gave.
  const kind = state.project.kind;
  if (kind === "spans" || isFixed()) return null;
  const send = (event, label) => { event.preventDefault(); if (label !== "" && !Number.isNaN(label)) decide({ label }, spell(label)); };
  if (kind === "sets") {
    const boxes = state.project.classes.map((name) => h("label", {}, h("input", { type: "checkbox", value: name, checked: (one.label ?? []).includes(name) }), ` ${name}`));
    return h("form", { class: "ticks", onsubmit: (event) => send(event, [...event.target.querySelectorAll("input:checked")].map((box) => box.value)) }, boxes, h("button", { type: "submit" }, "Decide for the selected"));
  }
  const input = h("input", { type: kind === "numbers" ? "number" : "text", step: "any", list: "classes", required: true });
  return h("form", { onsubmit: (event) => send(event, kind === "numbers" ? input.valueAsNumber : input.value.trim()) }, h("label", {}, h("span", {}, "Another answer"), input), h("datalist", { id: "classes" }, state.project.classes.map((name) => h("option", { value: name }))), h("button", { type: "submit" }, "Decide"));
}

function pick(at) {
  const choice = state.case.choices[at];
  if (!choice) return;
  if (!state.chosen) return decide({ label: choice.label }, spell(choice.label));
  if (!state.chosen.delete(at)) state.chosen.add(at);
  drawCase();
}

function both() {
  const all = state.case.choices, given = all.flatMap((choice, at) => (choice.who.length ? [at] : []));
  const right = state.chosen ? [...state.chosen] : given.length === 2 ? given : [];
  if (right.length > 1) return decide({ both: right.map((at) => all[at].label) }, `${right.map((at) => spell(all[at].label)).join(" and ")} are correct`);
  state.chosen ??= new Set();
  tell("Press the numbers of all correct labels, then Enter.");
  drawCase();
}

let busy = false;
async function once(act) { // Only one action runs at a time, however fast the keys are pressed.
  if (busy) return;
  busy = true;
  $("alert").replaceChildren();
  try { await act(); } catch (error) { complain(error, route); } finally { busy = false; }
}

const decide = (said, words) => once(async () => {
  const one = state.case;
  const told = await ask(of("decisions"), "POST", { item: one.item, ...said, ...(one.note ? { note: one.note } : {}) });
  state.history.push({ item: one.item, seq: told.accepted ? told.seq : null }); // null: the same decision existed before.
  await step(`${one.item}: ${words}.`);
});
const skip = () => once(async () => { state.skipped.add(state.case.item); state.history.push({ item: state.case.item, skip: true }); await step(`${state.case.item} skipped.`); });
const undo = () => once(async () => {
  const last = state.history.at(-1);
  if (!last) return;
  if (last.skip) state.skipped.delete(last.item);
  else if (last.seq) await ask(of(`decisions/${itemPath(last.item)}?seq=${last.seq}`), "DELETE");
  state.history.pop();
  await adjudicate(last.item);
  tell(`Undone. Back to ${last.item}.`);
});
const advance = () => once(() => step(""));

async function step(words) {
  const hash = `#/${encodeURIComponent(state.project.name)}/adjudicate`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
  await adjudicate();
  tell(`${words} ${state.case ? `Next: ${state.case.item}.` : "The queue is empty."}`);
}

document.addEventListener("keydown", (event) => {
  const field = event.target.closest("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape" && field) { field.blur(); return event.preventDefault(); }
  if (event.key === "Escape" && state.chosen) { state.chosen = null; return drawCase(); }
  if (state.view !== "adjudicate" || event.ctrlKey || event.metaKey || event.altKey || event.repeat || field) return;
  if (event.key === "z") return undo();
  if (!state.case) return;
  if (/^\d$/.test(event.key)) return pick(state.case.choices.findIndex((choice) => choice.key === event.key));
  const act = { s: skip, b: both, u: () => decide({ unclear: true }, "the guideline is unclear"), n: () => $("note").focus() }[event.key] ?? (event.key === "Enter" && state.chosen && both);
  if (act) { event.preventDefault(); act(); }
});

addEventListener("hashchange", () => { route(); scrollTo(0, 0); $("main").focus({ preventScroll: true }); });
setInterval(() => { if (!document.hidden && state.me?.signed_in && ["overview", "annotators"].includes(state.view)) route(); }, 30_000);
route();
