// Elements, numbers as text, and packed data. Whatever comes from a model goes in as text, never as markup.

/** An element with properties, attributes (names with "-" and "role") and children; null children are left out. */
function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name.includes("-") || name === "role" || name === "for") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** Replaces all children of the element with this id. */
function fill(id, ...children) {
  const node = document.getElementById(id);
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** The JSON packed in the data element of this id. */
async function unpack(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const isNumber = (value) => typeof value === "number";

function number(value, digits = 3) {
  if (!isNumber(value)) return value === null || value === undefined ? "–" : String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
}

const percent = (value) => (isNumber(value) ? `${(value * 100).toFixed(1)} %` : "–");

/** "12.3 % (10.1 to 14.5)" of an estimate; `show` makes text of one number. */
function interval(estimate, show) {
  if (!estimate || !isNumber(estimate.value)) return "–";
  const known = isNumber(estimate.low) && isNumber(estimate.high);
  return show(estimate.value) + (known ? ` (${show(estimate.low)} to ${show(estimate.high)})` : "");
}

const times = (value) => `${number(value)}×`;

function options(select, pairs, chosen) {
  select.replaceChildren(...pairs.map(([value, text]) => el("option", { value, textContent: text, selected: value === chosen })));
}

/** Calls `act` when nothing was typed for a moment. */
function settled(act, wait = 150) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, wait);
  };
}
