// Figures drawn with Observable Plot, and saved as SVG or PNG. What is in a figure is decided elsewhere.

const HEIGHT = 250;

const marks = {
  curve(figure) {
    const line = figure.series[0];
    const data = figure.x.map((x, at) => ({ x, y: line.y[at] }));
    return { marks: [
      Plot.lineY(data, { x: "x", y: "y", stroke: line.colour, strokeWidth: 2, curve: "step-after" }),
      Plot.tip(data, Plot.pointerX({ x: "x", y: "y", title: (d) => `p = ${d.x}: ${percent(d.y)}` })), Plot.ruleY([0])] };
  },
  points(figure) {
    const width = figure.series.length;
    const data = figure.series.flatMap((series, place) => series.y.map((y, at) => ({
      x: at + (place - (width - 1) / 2) * 0.12, y, low: series.low[at], high: series.high[at], label: series.label,
      colour: series.colour, name: figure.categories[at] })).filter((d) => isNumber(d.y)));
    const title = (d) => `${d.label}, turn ${d.name}: ${percent(d.y)}\n${percent(d.low)} to ${percent(d.high)}`;
    return {
      x: { domain: [-0.5, figure.categories.length - 0.5], ticks: figure.categories.map((_, at) => at),
        tickFormat: (at) => figure.categories[at] },
      marks: [Plot.lineY(data, { x: "x", y: "y", z: "label", stroke: "colour", strokeOpacity: 0.6 }),
        Plot.ruleX(data, { x: "x", y1: "low", y2: "high", stroke: "colour", strokeWidth: 2 }),
        Plot.dot(data, { x: "x", y: "y", fill: "colour", r: 4 }), Plot.ruleY([0]),
        Plot.tip(data, Plot.pointer({ x: "x", y: "y", title }))] };
  },
  stack(figure) {
    const data = figure.series.flatMap((series) => series.y.map((y, at) => ({
      x: figure.categories[at], y, label: series.label, colour: series.colour })));
    return { x: { type: "band", domain: figure.categories },
      marks: [Plot.barY(data, { x: "x", y: "y", fill: "colour", order: null,
        tip: true, title: (d) => `${d.label}, turn ${d.x}: ${percent(d.y)}` }), Plot.ruleY([0])] };
  },
  histogram(figure) {
    const bars = figure.series[0];
    const data = bars.y.map((y, at) => ({ x1: figure.x[at], x2: figure.x[at + 1], y }));
    const title = (d) => `${number(d.x1)} to ${number(d.x2)}: ${number(d.y)}`;
    return { x: { type: "log", base: 2, tickFormat: (x) => number(x), domain: [figure.x[0], figure.x[figure.x.length - 1]], ticks: 6 },
      marks: [Plot.rectY(data, { x1: "x1", x2: "x2", y: "y", fill: bars.colour, inset: 0.5, tip: true, title }), Plot.ruleY([0]),
        figure.x[0] <= 1 && figure.x[figure.x.length - 1] >= 1 && figure.name === "speedups"
          ? Plot.ruleX([1], { stroke: "currentColor", strokeDasharray: "3,3" }) : null] };
  },
  bars(figure) {
    const data = figure.categories.map((name, at) => ({ name, x: figure.series[0].y[at] }));
    return { marginLeft: 8 + 7 * Math.max(...figure.categories.map((name) => name.length)),
      y: { type: "band", domain: figure.categories, label: null },
      marks: [Plot.barX(data, { x: "x", y: "name", fill: figure.series[0].colour, tip: true,
        title: (d) => `${d.name}: ${number(d.x)}` }), Plot.ruleX([0])] };
  },
};

function picture(figure, width) {
  const own = marks[figure.kind](figure);
  const labels = { x: { ...own.x, label: figure.x_label }, y: { label: figure.y_label, ...own.y } };
  if (figure.percent) labels.y = { ...labels.y, domain: [0, 1], tickFormat: (y) => `${Math.round(y * 100)} %` };
  return Plot.plot({ ...own, ...labels, width, height: HEIGHT, marginLeft: own.marginLeft || 54, marginBottom: 38, grid: true,
    style: { background: "transparent", fontSize: "12px" }, ariaLabel: `${figure.title}. ${figure.note}` });
}

function drawPlots(figures) {
  const grid = el("div", { className: "plots" });
  fill("plots", grid);
  for (const figure of figures) {
    const box = el("figure", { id: `plot-${figure.name}` });
    grid.append(box);
    const heading = el("h3", { textContent: figure.title });
    const note = el("p", { className: "quiet", textContent: figure.note });
    if (figure.empty !== null) {
      box.append(heading, note, el("p", { className: "empty", textContent: figure.empty }));
      continue;
    }
    const drawn = picture(figure, Math.max(260, Math.min(620, box.clientWidth - 24)));
    const legend = figure.series.length < 2 ? null : el("div", { className: "legend" }, figure.series.map((series) => {
      const swatch = el("span", { className: "swatch" });
      swatch.style.background = series.colour;
      return el("span", {}, swatch, series.label);
    }));
    const save = (name, act) => el("button", { type: "button", textContent: name, "aria-label": `Save ${figure.title} as ${name}`, onclick: act });
    box.append(el("div", { className: "save" }, save("SVG", () => saveSvg(figure, drawn)), save("PNG", () => savePng(figure, drawn))),
      heading, note, ...[legend, drawn].filter(Boolean));
  }
}

/** The plot as a file of its own, with its colours and a background. */
function svgText(drawn) {
  const copy = drawn.cloneNode(true);
  const style = getComputedStyle(document.documentElement);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.style.background = style.getPropertyValue("--back");
  copy.style.color = style.getPropertyValue("--ink");
  copy.style.fontFamily = "sans-serif";
  return new XMLSerializer().serializeToString(copy);
}

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const saveSvg = (figure, drawn) => download(new Blob([svgText(drawn)], { type: "image/svg+xml" }), `${figure.name}.svg`);

function savePng(figure, drawn) {
  const image = new Image();
  const url = URL.createObjectURL(new Blob([svgText(drawn)], { type: "image/svg+xml" }));
  image.onload = () => {
    const canvas = el("canvas", { width: drawn.width.baseVal.value * 2, height: drawn.height.baseVal.value * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(url);
    canvas.toBlob((blob) => download(blob, `${figure.name}.png`));
  };
  image.src = url;
}
