// The task table: search, filter, sort, pages. Holds columns, draws one page of rows.

const PAGE_ROWS = 50;
const COLUMNS = [
  ["task", "Task", false], ["source", "Source", false], ["level", "Level", true], ["status", "Best status", false],
  ["episodes", "Episodes", true], ["correct", "Correct", true], ["solved_at", "Turns to success", true],
  ["speedup", "Best speedup", true], ["tokens", "Tokens", true],
];

class TaskTable {
  /** `choose(task id)` shows a task's episodes; `shown` tells how many of them the page holds. */
  constructor(columns, shown, choose) {
    Object.assign(this, { columns, shown, choose, sort: "task", down: false, page: 0, belongs: () => true });
    this.total = columns.task ? columns.task.length : 0;
    this.text = Array.from({ length: this.total }, (_, row) =>
      `${columns.task[row]} ${columns.source[row]} ${columns.status[row]}`.toLowerCase());
    const statuses = [...new Set(columns.status || [])].sort();
    options(document.getElementById("task-status"), [["", "all"], ...statuses.map((name) => [name, name])], "");
    document.getElementById("task-search").addEventListener("input", settled(() => this.restart()));
    document.getElementById("task-status").addEventListener("change", () => this.restart());
    this.restart();
  }

  restart() {
    this.page = 0;
    this.draw();
  }

  rows() {
    const words = document.getElementById("task-search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const status = document.getElementById("task-status").value;
    const found = [];
    this.members = 0;
    for (let row = 0; row < this.total; row++) {
      if (!this.belongs(row)) continue;
      this.members += 1;
      if (status && this.columns.status[row] !== status) continue;
      if (words.every((word) => this.text[row].includes(word))) found.push(row);
    }
    return found.sort((a, b) => this.order(a, b));
  }

  order(a, b) {
    const [x, y] = [this.columns[this.sort][a], this.columns[this.sort][b]];
    // What is not known comes last, whichever way.
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    const found = isNumber(x) ? x - y : x < y ? -1 : x > y ? 1 : 0;
    return (this.down ? -found : found) || a - b;
  }

  head() {
    return el("tr", {}, COLUMNS.map(([name, label, numeric]) => {
      const active = name === this.sort;
      const button = el("button", { type: "button", textContent: label + (active ? (this.down ? " ▼" : " ▲") : ""), onclick: () => {
        this.down = active ? !this.down : numeric;
        this.sort = name;
        this.restart();
        document.querySelector(`#task-table th[data-name="${name}"] button`).focus();
      } });
      return el("th", { scope: "col", className: numeric ? "number" : "", "data-name": name,
        "aria-sort": active ? (this.down ? "descending" : "ascending") : "none" }, button);
    }), el("th", { scope: "col", textContent: "To read" }));
  }

  line(row) {
    const value = (name) => this.columns[name][row];
    const cells = COLUMNS.map(([name, , numeric]) => el("td", { className: numeric ? "number" : "",
      textContent: name === "speedup" && isNumber(value(name)) ? times(value(name)) : number(value(name)) }));
    if (value("flagged")) cells[0].append(" ", el("span", { className: "badge bad", textContent: "flagged" }));
    const count = this.shown.get(value("task")) || 0;
    const button = count ? el("button", { type: "button", textContent: String(count), onclick: () => this.choose(value("task")),
      "aria-label": `Read ${count} episodes of ${value("task")}` }) : "–";
    return el("tr", {}, cells, el("td", {}, button));
  }

  draw() {
    const rows = this.rows();
    const pages = Math.max(1, Math.ceil(rows.length / PAGE_ROWS));
    this.page = Math.min(this.page, pages - 1);
    const visible = rows.slice(this.page * PAGE_ROWS, (this.page + 1) * PAGE_ROWS);
    fill("task-table", el("thead", {}, this.head()), el("tbody", {}, visible.map((row) => this.line(row))));
    fill("task-count", `${number(rows.length)} of ${number(this.members)} tasks`);
    const go = (text, to) => el("button", { type: "button", textContent: text, disabled: to < 0 || to >= pages, onclick: () => {
      this.page = to;
      this.draw();
    } });
    fill("task-pages", go("Previous", this.page - 1), el("span", { textContent: `Page ${this.page + 1} of ${number(pages)}` }),
      go("Next", this.page + 1));
  }
}
