// Tables of any length. Only the visible rows are in the document. This file knows rows and columns; it must not know their
// meaning.

/** Additional rows above and below the visible ones. */
const MARGIN = 12;
/** Maximum number of rows: more would exceed the height that browsers can scroll. */
const MOST = 400_000;

/** An element with attributes and children. Strings become text, never markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.map((child) => (typeof child === "string" ? sanitized(child) : child)));
  return made;
}

/** The text without bidirectional controls, line breaks and invisible characters. */
export function sanitized(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, "\ufffd");
}

/**
 * A table in `section`. Each column has a name, a class, a `text` function, for more than text a `cell` function, and for
 * another order than the text's an `order` function. The roles stay when a narrow window shows rows as lines.
 */
export class Rows {
  #all = [];
  #shown = [];
  #words = [];
  #sort;
  #down = true;
  #height = 0;
  #range = "";

  constructor(section, { label, one, many, columns, none, descending = false }) {
    Object.assign(this, { one, many, columns, none });
    this.#down = !descending;
    this.#sort = columns[0];
    this.count = element("p", { class: "count", role: "status" });
    this.head = element("tr", { role: "row" }, ...columns.map((column) => this.#heading(column)));
    this.body = element("tbody", { role: "rowgroup" });
    this.table = element("table", { role: "table" }, element("caption", { class: "unseen" }, label), element("thead", { role: "rowgroup" }, this.head), this.body);
    this.scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, this.table);
    this.scroll.addEventListener("scroll", () => requestAnimationFrame(() => this.#draw()), { passive: true });
    new ResizeObserver(() => this.#draw()).observe(this.scroll);
    section.append(this.count, this.scroll);
  }

  /** Replaces the rows. */
  set(rows) {
    this.#all = rows.map((row) => ({ row, text: this.columns.map((column) => column.text(row)).join(" ").toLowerCase() }));
    this.#select();
  }

  /** Shows only rows with all of these words. */
  filter(text) {
    this.#words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.scroll.scrollTop = 0;
    this.#select();
  }

  #heading(column) {
    const button = element("button", { type: "button" }, column.name);
    const heading = element("th", { scope: "col", role: "columnheader", class: column.class }, button);
    button.addEventListener("click", () => {
      this.#down = this.#sort === column ? !this.#down : true;
      this.#sort = column;
      this.#select();
    });
    return heading;
  }

  #select() {
    const words = this.#words;
    this.#shown = this.#all.filter(({ text }) => words.every((word) => text.includes(word)));
    const { text, order: value = text } = this.#sort;
    const order = this.#down ? 1 : -1;
    const by = (row) => [value(row), ...this.columns.slice(0, 2).map((column) => column.text(row))];
    const keyed = this.#shown.map(({ row }) => ({ row, key: by(row) }));
    keyed.sort((a, b) => {
      for (let i = 0; i < a.key.length; i += 1) {
        if (a.key[i] !== b.key[i]) return a.key[i] < b.key[i] ? -order : order;
      }
      return 0;
    });
    const matching = keyed.length;
    this.#shown = keyed.slice(0, MOST).map(({ row }) => row);
    [...this.head.children].forEach((heading, i) => {
      const sorted = this.columns[i] === this.#sort;
      if (sorted) heading.setAttribute("aria-sort", this.#down ? "ascending" : "descending");
      else heading.removeAttribute("aria-sort");
    });
    this.table.setAttribute("aria-rowcount", String(matching + 1));
    const all = this.#all.length;
    const name = all === 1 ? this.one : this.many;
    const number = (count) => count.toLocaleString("en");
    let count = words.length > 0 ? `${number(matching)} of ${number(all)} ${name}` : `${number(all)} ${name}`;
    if (matching > MOST) count += `; the first ${number(MOST)} are listed, the filter finds the others`;
    // Screen readers announce every change, even to the same text.
    if (this.count.textContent !== count) this.count.textContent = count;
    this.#range = "";
    this.#draw();
  }

  /** Draws the visible rows. */
  #draw() {
    if (this.scroll.clientHeight === 0) return;
    const height = this.#height || 36;
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / height) - MARGIN);
    const last = Math.min(this.#shown.length, first + Math.ceil(this.scroll.clientHeight / height) + 2 * MARGIN);
    const range = `${first}-${last}`;
    if (range === this.#range) return;
    this.#range = range;
    const focused = this.body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const rows = this.#shown.slice(first, last).map((row, i) => this.#row(row, first + i));
    if (this.#shown.length === 0) {
      const why = this.#words.length > 0 ? `No ${this.one} matches the filter.` : this.none;
      rows.push(element("tr", { class: "none" }, element("td", { colspan: String(this.columns.length) }, why)));
    }
    this.body.replaceChildren(this.#space(first * height), ...rows, this.#space((this.#shown.length - last) * height));
    if (focused) [...this.body.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
    const measured = rows[0]?.getBoundingClientRect().height;
    if (this.#shown.length > 0 && measured && Math.abs(measured - height) > 0.01) {
      this.#height = measured;
      this.#range = "";
      this.#draw();
    }
  }

  #row(row, index) {
    const cells = this.columns.map((column) => {
      const text = column.text(row);
      const shown = column.cell?.(row) ?? (text || "–");
      return element("td", { role: "cell", class: column.class, title: sanitized(text) || undefined }, shown);
    });
    return element("tr", { role: "row", "aria-rowindex": String(index + 2) }, ...cells);
  }

  #space(height) {
    const row = element("tr", { class: "space", "aria-hidden": "true" });
    row.style.height = `${height}px`;
    return row;
  }
}
