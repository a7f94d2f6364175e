// The daemon's page: asks /status and /history every two seconds and shows what they tell.
//
//   ask() --> /status --> show head, problems, rows
//         --> /history?table=<chosen> --> four plots (SVG, drawn here)
//         --> no answer --> banner, and everything dimmed until there is one again
//
// All text goes in through textContent: names and messages come from other systems.
"use strict";

const EVERY_MS = 2000;
const PATIENCE_MS = 5000;
const KINDS = {
  STEADY_STATE: "good", INITIAL_SYNC: "busy", INITIALIZING: "idle", BACKOFF: "wait", NEEDS_RESYNC: "bad", STOPPED: "bad",
};
const ORDER = ["STOPPED", "NEEDS_RESYNC", "BACKOFF", "INITIAL_SYNC", "INITIALIZING", "STEADY_STATE"];

const page = {
  status: null, chosen: "", history: null, sort: { key: "", down: false }, span: 600, token: "", sure: "",
  answered: 0, rows: new Map(), hovered: null,
};
const $ = (id) => document.getElementById(id);

function element(name, text = "", kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = kind;
  return made;
}

function tell(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

// ---- numbers for people ----

function count(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

function short(value) {
  if (value === null || value === undefined) return "–";
  const [size, unit] = value >= 1e9 ? [1e9, " G"] : value >= 1e6 ? [1e6, " M"] : value >= 1e4 ? [1e3, " k"] : [1, ""];
  const scaled = value / size;
  return scaled.toLocaleString("en-US", { maximumFractionDigits: scaled >= 100 ? 0 : 1 }) + unit;
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10) return value.toFixed(1) + " s";
  const whole = Math.round(value);
  if (whole < 60) return whole + " s";
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return minutes + " min " + (whole % 60) + " s";
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? hours + " h " + (minutes % 60) + " min" : Math.floor(hours / 24) + " d " + (hours % 24) + " h";
}

// A time of the source, in the zone that positions are told in: 2026-11-17 12:35:05.353 Z
function moment(text) {
  return text ? text.replace("T", " ").replace("Z", " Z") : "";
}

function resolvedText({ source_time: time, resolved }) {
  return resolved && "resolved at " + (time ? moment(time) + " (" + resolved + ")" : resolved);
}

function clock(at, span) {
  const options = span > 86400
    ? { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" }
    : { hour: "2-digit", minute: "2-digit", second: span <= 1800 ? "2-digit" : undefined };
  return new Date(at * 1000).toLocaleTimeString("en-GB", options);
}

// ---- asking ----

async function fetched(path, options = {}) {
  const giving = new AbortController();
  const timer = setTimeout(() => giving.abort(), PATIENCE_MS);
  try {
    const answer = await fetch(path, { cache: "no-store", signal: giving.signal, ...options });
    // Snapshot ids have 63 bits and numbers here only 53: they stay texts.
    const text = (await answer.text()).replace(/"((?:epoch_)?snapshot_id)": ?(-?\d+)/g, '"$1":"$2"');
    return { ok: answer.ok, status: answer.status, body: JSON.parse(text) };
  } finally {
    clearTimeout(timer);
  }
}

async function ask() {
  try {
    const status = await fetched("/status");
    if (!status.ok) throw new Error(status.body.error);
    page.status = status.body;
    page.answered = Date.now();
    choose();
    show();
    if (page.chosen) {
      const wanted = page.chosen;
      const history = await fetched("/history?table=" + encodeURIComponent(wanted));
      if (wanted === page.chosen) page.history = history.ok ? history.body : null;
      showPlots();
    }
    showGone("");
  } catch (error) {
    showGone(error instanceof Error ? error.message : String(error));
  }
}

function choose() {
  const names = page.status.tables.map((table) => table.table);
  if (names.includes(page.chosen)) return;
  page.chosen = names.find((name) => location.hash === "#" + encodeURIComponent(name)) || names[0] || "";
  page.history = null;
}

function showGone(reason) {
  const gone = reason !== "";
  document.body.classList.toggle("stale", gone);
  $("gone").hidden = !gone;
  if (!gone) return;
  const since = page.answered ? " for " + seconds((Date.now() - page.answered) / 1000) : "";
  tell($("gone"), "The daemon has not answered" + since + ". What is shown below is old. (" + reason + ")");
  pill($("health"), "no answer", "bad");
  document.title = "no answer – Frazil";
}

// ---- showing ----

function show() {
  const status = page.status;
  tell($("pipeline"), status.pipeline || "Frazil");
  const troubled = status.tables.filter((table) => ["bad", "wait"].includes(KINDS[table.state]));
  const [word, kind] = !status.alive ? ["stuck", "bad"] : !status.ready ? ["not ready", "wait"]
    : troubled.length ? [troubled.length + " held up", "wait"] : ["publishing", "good"];
  pill($("health"), word, kind);
  document.title = (kind === "good" ? "" : word + " – ") + (status.pipeline || "Frazil") + " – Frazil";
  $("unready").hidden = status.alive && status.ready;
  tell($("unready"), status.reason);
  const lags = status.tables.map((table) => table.lag_seconds).filter((lag) => lag !== null);
  const rates = status.tables.map((table) => table.rows_per_second).filter((rate) => rate !== null);
  tell($("count"), count(status.tables.length));
  tell($("rate"), rates.length ? short(rates.reduce((sum, rate) => sum + rate, 0)) : "–");
  tell($("lag"), lags.length ? seconds(Math.max(...lags)) : "–");
  tell($("resolved-at"), moment(status.source_time) || status.resolved || "–");
  tell($("resolved-position"), status.source_time ? status.resolved : "");
  tell($("uptime"), status.started_at ? seconds((Date.now() - Date.parse(status.started_at)) / 1000) : "–");
  showProblems();
  showRows();
  showDetail();
  showActions();
}

function pill(place, word, kind) {
  tell(place, word);
  if (place.className !== "pill " + kind) place.className = "pill " + kind;
}

function showProblems() {
  const held = page.status.tables.filter((table) => table.error);
  held.sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state));
  $("problems").hidden = held.length === 0;
  const facts = JSON.stringify(held.map((table) => [table.table, table.state, table.error, table.hint]));
  if ($("errors").dataset.facts === facts) return;
  $("errors").dataset.facts = facts;
  $("errors").replaceChildren(...held.map((table) => {
    const line = element("li", "", KINDS[table.state] === "bad" ? "" : "waiting");
    line.append(element("strong", table.table), " ", element("span", table.state, "pill " + KINDS[table.state]));
    line.append(element("p", table.error));
    if (table.hint) line.append(element("p", table.hint, "hint"));
    return line;
  }));
}

function fitting() {
  const wanted = $("filter").value.trim().toLowerCase();
  const found = page.status.tables.filter(
    (table) => (table.table + " " + table.state + " " + table.source).toLowerCase().includes(wanted));
  const { key, down } = page.sort;
  if (!key) return found;
  const rank = (table) => key === "state" ? ORDER.indexOf(table.state) : table[key];
  const compare = (one, other) => {
    if (one === null || other === null) return (one === null) - (other === null);
    return (one > other ? 1 : one < other ? -1 : 0) * (down ? -1 : 1);
  };
  return [...found].sort((one, other) => compare(rank(one), rank(other)));
}

function showRows() {
  const tables = fitting();
  $("none").hidden = tables.length > 0 || page.status.tables.length === 0;
  const lines = tables.map((table) => {
    if (!page.rows.has(table.table)) page.rows.set(table.table, newRow(table.table));
    const row = page.rows.get(table.table);
    fillRow(row, table);
    return row.line;
  });
  const names = new Set(page.status.tables.map((table) => table.table));
  for (const name of page.rows.keys()) if (!names.has(name)) page.rows.delete(name);
  const shown = [...$("rows").children];
  // Moving a line takes the focus from it, so lines move only if their order is another one.
  if (shown.length !== lines.length || shown.some((line, at) => line !== lines[at])) {
    const focused = document.activeElement;
    $("rows").replaceChildren(...lines);
    if (focused && focused.isConnected) focused.focus();
  }
}

function newRow(name) {
  const line = element("tr");
  const head = element("th");
  head.scope = "row";
  const button = element("button", name);
  button.addEventListener("click", () => pick(name));
  const source = element("small");
  head.append(button, source);
  const state = element("td");
  const word = element("span", "", "pill");
  const load = element("div", "", "load");
  const bar = element("progress");
  bar.max = 1;
  const told = element("small");
  load.append(bar, told);
  state.append(word, load);
  const cells = ["lag", "rate", "rows", "epochs", "files", "snapshot"].map(
    (kind) => element("td", "", kind === "snapshot" ? "number mono" : "number"));
  line.append(head, state, ...cells);
  return { line, button, source, word, load, bar, told, cells };
}

function fillRow(row, table) {
  row.line.setAttribute("aria-current", String(table.table === page.chosen));
  tell(row.source, table.source ? "from " + table.source : "");
  pill(row.word, table.state, KINDS[table.state] || "");
  row.load.hidden = !table.load;
  if (table.load) showLoad(row, table);
  const files = table.data_files === null && table.delete_files === null ? "–"
    : short(table.data_files) + (table.delete_files ? " + " + short(table.delete_files) + " del" : "");
  [seconds(table.lag_seconds), short(table.rows_per_second), count(table.rows + table.deletes),
    count(table.epochs), files, table.snapshot_id || "–"].forEach((text, at) => tell(row.cells[at], text));
}

function showLoad(row, table) {
  const { done, total, eta_seconds: eta } = table.load;
  const known = total > 0;
  if (known) row.bar.value = Math.min(1, done / total);
  else row.bar.removeAttribute("value");
  row.bar.setAttribute("aria-label", "first load of " + table.table);
  // The total is an estimate: a load that has outrun it is shown as nearly done, not as more than done.
  const percent = known ? Math.min(99.9, (100 * done) / total).toFixed(1) + " % · " : "";
  const left = eta === null ? "" : " · " + seconds(eta) + " left";
  tell(row.told, percent + short(done) + (known ? " of " + short(total) : " rows") + left);
}

function showDetail() {
  const table = page.status.tables.find((one) => one.table === page.chosen);
  $("detail").hidden = !table;
  if (!table) return;
  tell($("detail-title"), table.table);
  const facts = [table.source && "from " + table.source, resolvedText(table),
    table.snapshot_id && "snapshot " + table.snapshot_id, count(table.deletes) + " deletes"];
  tell($("detail-facts"), facts.filter(Boolean).join(" · "));
  for (const button of document.querySelectorAll("[data-span]")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.span) === page.span));
  }
}

function pick(name) {
  page.chosen = name;
  page.history = null;
  page.sure = "";
  history.replaceState(null, "", "#" + encodeURIComponent(name));
  show();
  showPlots();
  ask();
}

// ---- plots ----

const HEIGHT = 176, LABELS = 7, RIGHT = 10, TOP = 10, BOTTOM = 22;
const PLOTS = {
  lag: { lines: ["lag_seconds"], names: [], text: seconds, whole: false },
  rate: { lines: ["rows_per_second"], names: [], text: short, whole: false },
  files: { lines: ["data_files", "delete_files"], names: ["data", "deletes"], text: short, whole: true },
  snapshots: { lines: ["snapshots", "epochs"], names: ["of the table", "epochs of this run"], text: short, whole: true },
};

function svg(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.textContent = text;
  return made;
}

// How many pixels a label of a plot takes.
function wide(text) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "11px " + getComputedStyle(document.body).fontFamily;
  return Math.ceil(pen.measureText(text).width);
}

function showPlots() {
  for (const figure of document.querySelectorAll("[data-plot]")) draw(figure, PLOTS[figure.dataset.plot]);
}

function draw(figure, plot) {
  const series = cut(page.history);
  const caption = figure.querySelector("figcaption");
  if (!caption.querySelector("output")) {
    caption.append(...plot.names.map((name) => element("i", name)), element("output"));
  }
  const lines = series ? plot.lines.map((name) => series[name]) : [];
  const known = lines.flat().filter((value) => value !== null);
  const width = Math.max(240, figure.clientWidth);
  const picture = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  if (!known.length || series.at.length < 2) {
    picture.append(svg("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle", class: "empty" }, "nothing to draw yet"));
    tell(caption.querySelector("output"), "");
    replace(figure, picture);
    return;
  }
  const span = series.at[series.at.length - 1] - series.at[0];
  const ticks = scale(Math.max(...known), plot.whole);
  const left = 2 * LABELS + Math.max(...ticks.map((tick) => wide(plot.text(tick))));
  const x = (at) => left + ((at - series.at[0]) / span) * (width - left - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / ticks[ticks.length - 1]) * (HEIGHT - TOP - BOTTOM);
  for (const tick of ticks) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - RIGHT, y1: y(tick), y2: y(tick) }));
    picture.append(svg("text", { x: left - LABELS, y: y(tick) + 4, "text-anchor": "end" }, plot.text(tick)));
  }
  const roomy = 4 * wide(clock(series.at[0], span)) < width - left - RIGHT;
  for (const [part, anchor] of roomy ? [[0, "start"], [0.5, "middle"], [1, "end"]] : [[0, "start"], [1, "end"]]) {
    const at = series.at[0] + part * span;
    picture.append(svg("text", { x: x(at), y: HEIGHT - 5, "text-anchor": anchor }, clock(at, span)));
  }
  lines.forEach((values, number) => curve(picture, series.at, values, x, y, number ? " second" : ""));
  const nearest = page.hovered === null ? series.at.length - 1 : nearestTo(series.at, page.hovered);
  const told = lines.map((values) => plot.text(values[nearest])).join(" / ");
  if (page.hovered !== null) {
    const at = x(series.at[nearest]);
    picture.append(svg("line", { class: "cursor", x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }));
  }
  const when = page.hovered === null ? "" : clock(series.at[nearest], span) + "  ";
  tell(caption.querySelector("output"), when + told);
  picture.setAttribute("aria-label", caption.firstChild.textContent + ": now " + told);
  picture.addEventListener("pointermove", (event) => {
    const inside = event.clientX - picture.getBoundingClientRect().left;
    const part = Math.min(1, Math.max(0, (inside - left) / (width - left - RIGHT)));
    page.hovered = series.at[0] + part * span;
    showPlots();
  });
  replace(figure, picture);
}

function replace(figure, picture) {
  const before = figure.querySelector("svg");
  if (before) before.replaceWith(picture);
  else figure.append(picture);
}

function cut(series) {
  if (!series || !page.span) return series;
  const since = series.at[series.at.length - 1] - page.span;
  const first = series.at.findIndex((at) => at >= since);
  return Object.fromEntries(
    Object.entries(series).map(([name, values]) => [name, Array.isArray(values) ? values.slice(first) : values]));
}

// A line is interrupted where nothing is known.
function curve(picture, times, values, x, y, kind) {
  let run = [];
  const finish = () => {
    if (run.length) {
      const path = run.map(([at, value], number) => (number ? "L" : "M") + x(at).toFixed(1) + " " + y(value).toFixed(1)).join("");
      const base = y(0).toFixed(1);
      const close = `L${x(run[run.length - 1][0]).toFixed(1)} ${base}L${x(run[0][0]).toFixed(1)} ${base}Z`;
      picture.append(svg("path", { class: "area" + kind, d: path + close }));
      picture.append(svg("path", { class: "curve" + kind, d: path }));
    }
    run = [];
  };
  times.forEach((at, number) => (values[number] === null ? finish() : run.push([at, values[number]])));
  finish();
}

function scale(most, whole) {
  const rough = Math.max(most, whole ? 1 : 0.1) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  if (whole) step = Math.max(1, Math.ceil(step));
  const ticks = [0];
  while (ticks[ticks.length - 1] < most || ticks.length < 2) ticks.push(ticks.length * step);
  return ticks;
}

function nearestTo(times, at) {
  let best = 0;
  times.forEach((time, number) => { if (Math.abs(time - at) < Math.abs(times[best] - at)) best = number; });
  return best;
}

// ---- actions ----

function showActions() {
  const offered = page.status.actions;
  $("actions").hidden = !offered;
  $("unlock").hidden = page.token !== "";
  $("unlocked").hidden = page.token === "";
  const table = page.sure || page.chosen;
  $("resync").disabled = !table;
  $("resync").classList.toggle("danger", page.sure !== "");
  tell($("resync"), page.sure ? "Really load " + table + " anew?" : "Load " + table + " anew");
}

async function act(path) {
  said("…", false);
  try {
    const answer = await fetched(path, { method: "POST", headers: { Authorization: "Bearer " + page.token } });
    if (answer.status === 401) page.token = "";
    said(answer.ok ? answer.body.done : [answer.body.error, answer.body.hint].filter(Boolean).join(" – "), !answer.ok);
  } catch (error) {
    said("No answer: " + error.message, true);
  }
  page.sure = "";
  showActions();
  ask();
}

function said(text, failed) {
  tell($("said"), text);
  $("said").classList.toggle("failed", failed);
}

// ---- listening ----

$("filter").addEventListener("input", () => page.status && showRows());
$("heads").addEventListener("click", (event) => {
  const key = event.target.dataset.sort;
  if (!key || !page.status) return;
  const text = key === "table" || key === "state";
  page.sort = page.sort.key === key ? { key, down: !page.sort.down } : { key, down: !text };
  for (const head of $("heads").children) head.removeAttribute("aria-sort");
  event.target.closest("th").setAttribute("aria-sort", page.sort.down ? "descending" : "ascending");
  showRows();
});
$("rows").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const line = event.target.closest("tr");
  const next = line && step && (step > 0 ? line.nextElementSibling : line.previousElementSibling);
  if (!next) return;
  event.preventDefault();
  next.querySelector("button").focus();
  next.querySelector("button").click();
});
document.querySelector(".choices").addEventListener("click", (event) => {
  if (event.target.dataset.span === undefined) return;
  page.span = Number(event.target.dataset.span);
  showDetail();
  showPlots();
});
document.querySelector(".plots").addEventListener("pointerleave", () => { page.hovered = null; showPlots(); });
$("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  page.token = $("token").value.trim();
  $("token").value = "";
  said("", false);
  if (page.status) showActions();
});
$("lock").addEventListener("click", () => { page.token = ""; page.sure = ""; said("", false); showActions(); });
$("reload").addEventListener("click", () => act("/reload"));
$("resync").addEventListener("click", () => {
  if (!page.sure) {
    page.sure = page.chosen;
    showActions();
  } else {
    act("/resync?table=" + encodeURIComponent(page.sure));
  }
});

async function watch() {
  if (!document.hidden) await ask();
  setTimeout(watch, EVERY_MS);
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
window.addEventListener("resize", () => { if (page.status) showPlots(); });
watch();
