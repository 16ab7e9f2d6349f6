// The card of one verdict, with a picture of where an output was wrong.

const SVG = "http://www.w3.org/2000/svg";
const STRIP = 400;

function shape(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

function timing(name, found) {
  return found ? [[name, `${number(found.median_ms)} ms median, ${number(found.trimmed_mean_ms)} ms mean, ±${number(found.std_ms)}, n = ${found.n}`]] : [];
}

const pairs = (found) => Object.entries(found || {}).map(([name, value]) => `${name} ${number(value)}`).join(", ");

function facts(verdict) {
  const { error, evidence, env } = verdict;
  const yes = ["valid", "compiled", "correct", "trusted", "timed"].filter((name) => verdict[name]);
  const range = isNumber(verdict.speedup_low) ? ` (${times(verdict.speedup_low)} to ${times(verdict.speedup_high)})` : "";
  const rows = [["is", yes.join(", ") || "none of valid, compiled, correct"],
    ["tests", `${verdict.tests_passed} of ${verdict.tests_total} passed`]];
  if (isNumber(verdict.speedup)) rows.push(["speedup", times(verdict.speedup) + range]);
  rows.push(...timing("kernel", verdict.kernel_time), ...timing("reference", verdict.reference_time), ...timing("torch.compile", verdict.compiled_time));
  if (error && error.position) rows.push(["first wrong", `${error.output || "output"}[${error.position.join(", ")}]: expected ${error.expected}, got ${error.got}`]);
  if (error && error.max_abs_error !== null) rows.push(["largest error", `${number(error.max_abs_error)} absolute, ${number(error.max_rel_error)} relative`]);
  if (error && error.pattern) rows.push(["pattern", error.pattern]);
  if (error && error.line) rows.push(["line", String(error.line)]);
  if (evidence.kernel_launches !== null) rows.push(["kernels", `${evidence.kernels.join(", ") || "?"}; ${number(evidence.kernel_launches)} launches`]);
  if (Object.keys(evidence.torch_ops).length) rows.push(["torch operators", pairs(evidence.torch_ops)]);
  if (Object.keys(evidence.generalises).length) rows.push(["beyond the task", pairs(evidence.generalises)]);
  if (evidence.flags.length) rows.push(["flags", evidence.flags.join(", ")]);
  const where = [env.gpu || env.device, env.torch && `torch ${env.torch}`, env.triton && `triton ${env.triton}`, env.host].filter(Boolean);
  if (where.length) rows.push(["where", where.join(", ")]);
  if (Object.keys(verdict.seconds).length) rows.push(["seconds", pairs(verdict.seconds)]);
  return rows;
}

/** The output as a strip in row-major order, wrong parts filled. Only what the verdict tells is drawn. */
function mismatchPicture(found) {
  const share = found.wrong / found.total;
  const spans = { all: [[0, 1]], tail: [[found.start / found.total, 1]], every: stripes(found), unknown: [] }[found.where];
  const said = { all: "every element", tail: `from flat index ${number(found.start)} on`, unknown: "their places were not kept",
    every: `every ${found.step}-th element from flat index ${number(found.start)}` }[found.where];
  const text = `${number(found.wrong)} of ${number(found.total)} elements wrong (${percent(share)}): ${said}`;
  const picture = shape("svg", { viewBox: `0 0 ${STRIP} 20`, preserveAspectRatio: "none", role: "img", "aria-label": text });
  if (found.where === "unknown") spans.push([0, share]);
  for (const [from, to] of spans) {
    picture.append(shape("rect", { x: from * STRIP, y: 0, width: Math.max(0.8, (to - from) * STRIP), height: 20,
      fill: "#d1495b", "fill-opacity": found.where === "unknown" ? 0.45 : 0.9 }));
  }
  const caption = found.where === "unknown" ? "The bar is the share, not the place." : "The output from its first element to its last.";
  return el("div", { className: "mismatch" }, el("p", { textContent: text }), picture, el("p", { className: "quiet", textContent: caption }));
}

function stripes(found) {
  const count = Math.min(found.wrong, 60);
  return Array.from({ length: count }, (_, at) => {
    const from = (found.start + at * found.step * Math.max(1, found.wrong / count)) / found.total;
    return [from, from + 1 / Math.max(found.total, count * 3)];
  });
}

function verdictCard(verdict) {
  const error = verdict.error;
  return el("div", { className: "verdict" },
    el("p", {}, badge(verdict.status, verdict.correct), ` reached stage ${verdict.stage}`, error ? `, told as ${error.category}` : ""),
    error && error.message ? el("p", { textContent: error.message }) : null,
    verdict.mismatch ? mismatchPicture(verdict.mismatch) : null,
    el("dl", {}, facts(verdict).flatMap(([name, value]) => [el("dt", { textContent: name }), el("dd", { textContent: value })])),
    error && error.detail ? fold("Details of the error", textBlock(error.detail)) : null);
}

const badge = (text, good) => el("span", { className: `badge ${good ? "good" : "bad"}`, textContent: text });
const textBlock = (text) => el("pre", { className: "text", textContent: text, tabIndex: 0 });
const fold = (title, ...content) => el("details", {}, el("summary", { textContent: title }), content);
