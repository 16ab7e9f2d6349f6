// Headline numbers of one set of episodes, and the table of metrics of all sets.

function card(label, estimate, show, note) {
  const known = estimate && isNumber(estimate.low) && isNumber(estimate.high);
  return el("div", { className: "card" },
    el("span", { className: "quiet", textContent: label }),
    el("strong", { textContent: estimate && isNumber(estimate.value) ? show(estimate.value) : "–" }),
    el("span", { className: "quiet", textContent: known ? `${show(estimate.low)} to ${show(estimate.high)}` : note || "" }));
}

function fastAt(answers, p) {
  const found = answers.fast_p.find((item) => item.p === p);
  return found ? found.share : null;
}

function drawHeadline(scope, timed) {
  const m = scope.metrics;
  const untimed = timed ? "none" : "not timed: no GPU";
  const pass = m.pass_at_k.map((item) => card(`pass@${item.k}`, item.estimate, percent));
  fill("headline",
    card("valid, best of turns", m.best.valid, percent), card("compiled, best of turns", m.best.compiled, percent),
    card("correct, best of turns", m.best.correct, percent), card("correct, last turn", m.last.correct, percent),
    card("fast_1: speedup > 1", fastAt(m.best, 1), percent, untimed),
    card("fast_2 (KernelBench): > 2", fastAt(m.best, 2), percent, untimed),
    card("fast_2 (first document): ≥ 2", m.best.fast_2_at_least, percent, untimed),
    card("geometric mean speedup", m.best.speedup_geomean, times, untimed),
    card("median speedup", m.best.speedup_median, times, untimed),
    pass.length > 4 ? [pass[0], pass[pass.length - 1]] : pass,
    card("turns to success", m.turns_to_success, number), card("code found in answers", m.format, percent),
    card("hacks of answers", m.hack, percent), card("failures of our side", m.infra, percent),
    card("tokens per correct kernel", m.costs.tokens_per_correct, number),
    card("GPU seconds per correct kernel", m.costs.gpu_s_per_correct, number, timed ? "" : "no GPU"));
}

const METRICS = [
  ["tasks", (m) => number(m.tasks)], ["episodes", (m) => number(m.episodes)],
  ["valid", (m) => interval(m.best.valid, percent)], ["compiled", (m) => interval(m.best.compiled, percent)],
  ["correct", (m) => interval(m.best.correct, percent)], ["correct, last turn", (m) => interval(m.last.correct, percent)],
  ["fast_1", (m) => interval(fastAt(m.best, 1), percent)], ["fast_2 (> 2)", (m) => interval(fastAt(m.best, 2), percent)],
  ["geomean speedup", (m) => interval(m.best.speedup_geomean, times)],
  ["mean speedup", (m) => interval(m.best.speedup_mean, times)],
  ["hack", (m) => interval(m.hack, percent)], ["model seconds", (m) => number(Math.round(m.costs.model_s))],
  ["tokens", (m) => number(m.costs.tokens)], ["GPU hours", (m) => number(hours(m))],
];

function hours(metrics) {
  return Math.round(metrics.costs.gpu_s / 36) / 100;
}


function drawMetrics(content) {
  const price = content.gpu_hour_price;
  const cost = [`cost at ${price} an hour`, (m) => number(Math.round(m.costs.gpu_s / 36 * price) / 100)];
  const columns = isNumber(price) ? [...METRICS, cost] : METRICS;
  const head = el("tr", {}, el("th", { scope: "col", textContent: "Set" }),
    columns.map(([name]) => el("th", { scope: "col", textContent: name })));
  const rows = content.scopes.map((scope) => el("tr", {}, el("th", { scope: "row", textContent: scope.label }),
    columns.map(([, show]) => el("td", { textContent: show(scope.metrics) }))));
  const table = el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Metrics of every set" },
    el("table", {}, el("thead", {}, head), el("tbody", {}, rows)));
  fill("metrics", el("details", {}, el("summary", { textContent: "All sets side by side, with 95 % intervals" }), table),
    content.published.length ? publishedTable(content.published) : null);
}

function publishedTable(rows) {
  const names = ["System", "Level", "Metric", "Published", "Here", "Source"];
  const cells = (row) => [row.system, `KernelBench ${row.level}`, row.metric, percent(row.published),
    interval(row.ours, percent), row.source];
  return el("details", {}, el("summary", { textContent: "Published numbers beside these" }),
    el("p", { className: "quiet", textContent: "Found on other GPUs and by other verifiers." }),
    el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Published numbers" },
      el("table", {}, el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col", textContent: name })))),
        el("tbody", {}, rows.map((row) => el("tr", {}, cells(row).map((text) => el("td", { textContent: text }))))))));
}
