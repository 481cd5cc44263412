// A table of any length: sorted by a click on a heading, drawn only where it is seen, copied as text.

import { el, fill, copyText } from "./elements.js";

const ROW = 26;

// `columns`: { name, title, isNumber, value(row), show(row) }; `show` gives a text or an element, `value` what sorts.
export class Table {
  constructor(parent, columns, onChoose) {
    this.columns = columns;
    this.onChoose = onChoose;
    this.rows = [];
    this.sorted = { column: columns.find((column) => column.isFirst) || columns[0], isDown: true };
    this.head = el("div.row.head", { role: "row" });
    this.body = el("div.body", { role: "rowgroup" });
    this.scroller = parent.appendChild(el("div.table", { role: "table", tabindex: 0 }, this.head, this.body));
    this.template = columns.map((column) => column.width || "minmax(80px, 1fr)").join(" ");
    this.scroller.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.drawHead();
  }

  set(rows) {
    this.rows = rows;
    this.sort();
  }

  sort() {
    const { column, isDown } = this.sorted;
    const keys = new Map(this.rows.map((row) => [row, column.value(row)]));
    const compare = column.isNumber ? (a, b) => keys.get(a) - keys.get(b) : (a, b) => String(keys.get(a)).localeCompare(String(keys.get(b)));
    this.rows.sort((a, b) => (isDown ? -compare(a, b) : compare(a, b)));
    this.drawHead();
    this.draw(true);
  }

  drawHead() {
    const cell = (column) => {
      const isSorted = this.sorted.column === column;
      const mark = isSorted ? (this.sorted.isDown ? " ▾" : " ▴") : "";
      const act = () => {
        this.sorted = { column, isDown: isSorted ? !this.sorted.isDown : Boolean(column.isNumber) };
        this.sort();
      };
      return el(`button.cell${column.isNumber ? ".number" : ""}`, { role: "columnheader", "aria-sort": isSorted ? (this.sorted.isDown ? "descending" : "ascending") : "none", onclick: act }, column.title + mark);
    };
    fill(this.head, ...this.columns.map(cell));
    this.head.style.gridTemplateColumns = this.template;
  }

  draw(isNew = false) {
    if (!this.scroller.clientHeight) return; // hidden: its rows may be another recording's
    if (isNew) this.scroller.scrollTop = 0;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - 4);
    const count = Math.ceil(this.scroller.clientHeight / ROW) + 8;
    this.body.style.height = `${Math.min(this.rows.length, 500000) * ROW}px`;
    fill(this.body, ...this.rows.slice(first, first + count).map((row, index) => this.line(row, first + index)));
  }

  line(row, index) {
    const cells = this.columns.map((column) => el(`div.cell${column.isNumber ? ".number" : ""}`, { role: "cell" }, column.show(row)));
    const isChosen = this.isChosen && this.isChosen(row);
    const node = el(`div.row${isChosen ? ".chosen" : ""}`, { role: "row", onclick: () => this.onChoose(row) }, ...cells);
    node.style.gridTemplateColumns = this.template;
    node.style.top = `${index * ROW}px`;
    return node;
  }

  key(event) {
    const page = this.scroller.clientHeight - ROW;
    const moves = { ArrowDown: ROW, ArrowUp: -ROW, PageDown: page, PageUp: -page, Home: -Infinity, End: 1e9 };
    if (!(event.key in moves)) return;
    this.scroller.scrollTop = Math.max(0, this.scroller.scrollTop + moves[event.key]);
    event.preventDefault();
    event.stopPropagation();
  }

  // As text, tabs between the cells: what a spreadsheet takes.
  text() {
    const cell = (column, row) => String(column.copy ? column.copy(row) : column.value(row)).replace(/[\t\r\n]/g, " ");
    const lines = [this.columns.map((column) => column.title), ...this.rows.map((row) => this.columns.map((column) => cell(column, row)))];
    return lines.map((cells) => cells.join("\t")).join("\n");
  }

  copy() {
    return copyText(this.text());
  }
}
