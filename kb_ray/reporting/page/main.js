// Wires the page: unpacks the content, keeps what is chosen in the address, follows a run where the page is served.

const LOOK_AGAIN_MS = 5000;

function chosen() {
  return new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : "");
}

function remember(name, value) {
  const state = chosen();
  if (value) state.set(name, value);
  else state.delete(name);
  history.replaceState(null, "", `#?${state}`);
}

function setTheme(name) {
  const dark = name ? name === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function about(content) {
  const parts = [content.store, `${number(content.episodes)} episodes`, `run ${content.runs.join(", ")}`,
    `model ${content.models.join(", ") || "none"}`, `made ${content.created}`];
  if (content.superseded) parts.push(`${number(content.superseded)} rows of other attempts not counted`);
  if (content.live) parts.push("follows the run");
  fill("about", parts.join(" · "));
  fill("sampled", content.index.length < content.episodes
    ? `${number(content.index.length)} of ${number(content.episodes)} episodes can be read here: some of every status, drawn with seed ${content.seed}. All numbers and plots are of all episodes.`
    : "All episodes can be read here.");
  fill("notices",
    content.damaged.map((file) => el("p", { className: "notice", textContent: `Left out: ${file.key}: ${file.reason}` })),
    content.notes.map((note) => el("p", { className: "notice", textContent: note })),
    content.timed ? null : el("p", { className: "notice", textContent: "Judged without a GPU: nothing is said about speed." }));
}

/** Which tasks belong to a set, by the row of the task table. */
function membership(key, tasks) {
  const [kind, name] = key.split(/:(.*)/s);
  return {
    overall: (row) => !tasks.flagged[row],
    everything: () => true,
    flagged: (row) => tasks.flagged[row],
    source: (row) => !tasks.flagged[row] && tasks.source[row] === name,
    level: (row) => !tasks.flagged[row] && (tasks.level[row] === null ? "none" : String(tasks.level[row])) === name,
  }[kind];
}

/** Loads the page again when the store no longer has the mark that this page is of. */
function follow(mark) {
  const ask = async () => {
    const answer = await fetch("mark", { cache: "no-store" });
    return answer.ok ? answer.text() : null;
  };
  setInterval(async () => {
    const now = await ask().catch(() => null);
    if (now && now !== mark) location.reload();
  }, LOOK_AGAIN_MS);
}

async function start() {
  const theme = document.getElementById("theme");
  theme.value = chosen().get("theme") || "";
  setTheme(theme.value);
  const content = await unpack("content");
  about(content);
  drawMetrics(content);
  const shown = new Map();
  for (const item of content.index) shown.set(item.task, (shown.get(item.task) || 0) + 1);
  const viewer = new Viewer(content.index, (id) => remember("episode", id));
  const table = new TaskTable(content.tasks, shown, (task) => viewer.ofTask(task));
  const rowOf = new Map((content.tasks.task || []).map((task, row) => [task, row]));
  const scopes = document.getElementById("scope");
  options(scopes, content.scopes.map((scope) => [scope.key, scope.label]), chosen().get("scope"));
  const current = () => content.scopes.find((scope) => scope.key === scopes.value);
  const apply = () => {
    const belongs = membership(scopes.value, content.tasks);
    table.belongs = belongs;
    viewer.belongs = (task) => belongs(rowOf.get(task));
    drawHeadline(current(), content.timed);
    drawPlots(current().figures);
    table.restart();
    viewer.list();
  };
  scopes.addEventListener("change", () => {
    remember("scope", scopes.value);
    apply();
  });
  theme.addEventListener("change", () => {
    setTheme(theme.value);
    remember("theme", theme.value);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(theme.value));
  for (const link of document.querySelectorAll("header nav a")) {
    // The address keeps what is chosen, so the sections are gone to without it.
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const section = document.querySelector(link.hash);
      section.tabIndex = -1;
      section.focus();
      section.scrollIntoView();
    });
  }
  let width = innerWidth;
  addEventListener("resize", settled(() => {
    if (innerWidth !== width) drawPlots(current().figures);
    width = innerWidth;
  }));
  apply();
  const wanted = chosen().get("episode");
  await viewer.show(content.index.some((item) => item.id === wanted) ? wanted : content.index[0]?.id, false);
  if (content.live) follow(content.live);
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  console.error(error);
  fill("notices", el("p", { className: "notice", textContent: `This browser could not show the report: ${error}` }));
});
