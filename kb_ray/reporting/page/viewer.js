// The episodes that can be read: a list with filters, and one episode turn by turn.

/** Python, highlighted. The library escapes what it is given; nothing else makes markup of a text. */
function codeBlock(text) {
  const code = el("code");
  code.innerHTML = hljs.highlight(text, { language: "python" }).value;
  return el("pre", { tabIndex: 0 }, code);
}

function diffBlock(hunks) {
  if (!hunks.length) return el("p", { className: "quiet", textContent: "The code is the same." });
  const names = { "+": "added", "-": "removed", " ": "" };
  const lines = hunks.flatMap((hunk, at) => [
    at ? el("span", { className: "gap", textContent: "⋯" }) : null,
    ...hunk.map(([sign, text]) => el("span", { className: names[sign], textContent: `${sign} ${text}` }))]);
  return el("pre", { className: "diff", tabIndex: 0 }, lines.filter(Boolean));
}

function turnBlock(turn, at, episode) {
  const facts = [turn.model, `${number(turn.tokens)} tokens`, `${number(turn.prompt_tokens)} of prompt`,
    `${number(turn.latency)} s`, `finish ${turn.finish}`, turn.rule && `code by ${turn.rule}`].filter(Boolean).join(" · ");
  const code = turn.code === null ? el("p", { textContent: "No code was found in this answer." })
    : el("details", { open: true }, el("summary", { textContent: "Code" }), codeBlock(turn.code));
  return el("section", { className: "turn", "aria-label": `Turn ${at + 1}` },
    el("h3", {}, `Turn ${at + 1} `, badge(turn.verdict.status, turn.verdict.correct), at === episode.best ? " best turn" : ""),
    el("p", { className: "quiet", textContent: facts }),
    turn.reasoning ? fold("Reasoning", textBlock(turn.reasoning)) : null,
    fold("Whole answer", textBlock(turn.completion)), code,
    turn.diff ? el("details", { className: "changes", open: true }, el("summary", { textContent: "Changes from the turn before" }), diffBlock(turn.diff)) : null,
    verdictCard(turn.verdict),
    turn.feedback ? el("details", { open: true }, el("summary", { textContent: "Told to the model" }), textBlock(turn.feedback)) : null);
}

function episodeBlocks(episode) {
  const facts = [`sample ${episode.sample}`, `attempt ${episode.attempt}`, `ended ${episode.created}`, episode.id];
  return [el("h3", {}, `${episode.task} `, badge(episode.stop, episode.stop.startsWith("success"))),
    el("p", { className: "quiet", textContent: facts.join(" · ") }),
    episode.flags.length ? el("p", { className: "notice", textContent: `Task flags: ${episode.flags.join(", ")}` }) : null,
    episode.error ? el("p", { className: "notice", textContent: episode.error }) : null,
    fold("Reference program", codeBlock(episode.reference)),
    fold(`What was asked (${episode.opening.length} messages)`, episode.opening.map((message) =>
      [el("h4", { textContent: message.role }), textBlock(message.content)])),
    episode.turns.map((turn, at) => turnBlock(turn, at, episode))];
}

class Viewer {
  /** `remember(id)` keeps which episode is open in the page's address. */
  constructor(index, remember) {
    Object.assign(this, { index, remember, open: null, asked: 0, belongs: () => true });
    const statuses = [...new Set(index.map((item) => item.status))].sort();
    options(document.getElementById("episode-status"), [["", "all"], ...statuses.map((name) => [name, name])], "");
    document.getElementById("episode-search").addEventListener("input", settled(() => this.list()));
    document.getElementById("episode-status").addEventListener("change", () => this.list());
    document.getElementById("episode-list").addEventListener("keydown", (event) => this.walk(event));
  }

  /** Arrow keys go through the list. */
  walk(event) {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const next = step && event.target.closest("li")?.[step];
    if (!next) return;
    event.preventDefault();
    next.firstChild.focus();
  }

  found() {
    const words = document.getElementById("episode-search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const status = document.getElementById("episode-status").value;
    return this.index.filter((item) => this.belongs(item.task) && (!status || item.status === status)
      && words.every((word) => `${item.task} ${item.id}`.toLowerCase().includes(word)));
  }

  list() {
    const found = this.found();
    fill("episode-count", `${number(found.length)} of ${number(this.index.length)} episodes`);
    fill("episode-list", found.map((item) => el("li", {}, el("button", {
      type: "button", "aria-current": String(item.id === this.open), "data-id": item.id, onclick: () => this.show(item.id, true) },
    el("span", { textContent: `${item.task} #${item.sample}` }),
    el("span", { className: "dots", textContent: (item.statuses.join(" → ") || item.stop) + (isNumber(item.speedup) ? ` · ${times(item.speedup)}` : "") })))));
    return found;
  }

  /** The episodes of one task. */
  ofTask(task) {
    document.getElementById("episode-status").value = "";
    document.getElementById("episode-search").value = task;
    const found = this.list().filter((item) => item.task === task);
    document.getElementById("episodes-section").scrollIntoView();
    if (found.length) this.show(found[0].id, true);
  }

  async show(id, moved) {
    const item = this.index.find((entry) => entry.id === id);
    if (!item) return;
    const ticket = ++this.asked;
    const episode = await unpack(`chunk-${item.chunk}`);
    if (ticket !== this.asked) return;
    this.open = id;
    for (const button of document.querySelectorAll("#episode-list button")) {
      button.setAttribute("aria-current", String(button.dataset.id === id));
    }
    fill("episode", episodeBlocks(episode));
    this.remember(id);
    if (moved && matchMedia("(max-width: 760px)").matches) document.getElementById("episode").scrollIntoView();
  }
}
