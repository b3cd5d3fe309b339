// Which part of a drawing is seen, and how large: moved and sized with mouse, fingers and keys.

const LEAST = 0.15;
const MOST = 3;
const MARGIN = 20;
const LEGIBLE = 0.55;

export class Lens {
  #size = [1, 1];
  #canvas = [1000, 560];
  #scale = 1;
  #middle = [0, 0];
  #touched = false;
  #svg = null;
  #again = () => {};
  #drag = null;

  get viewBox() {
    const [w, h] = this.#canvas.map((each) => each / this.#scale);
    return `${this.#middle[0] - w / 2} ${this.#middle[1] - h / 2} ${w} ${h}`;
  }

  /** A drawing of this size is to be seen, all of it. */
  show(width, height) {
    this.#size = [width, height];
    this.#begin();
  }

  /** All of it, unless nobody could read it then. */
  #begin() {
    this.fit();
    if (this.#scale >= LEGIBLE) return;
    this.#scale = LEGIBLE;
    const top = this.#canvas[1] / 2 / LEGIBLE - MARGIN;
    this.#middle = [this.#size[0] / 2, Math.min(top, this.#size[1] / 2)];
  }

  fit() {
    this.#touched = false;
    const [w, h] = this.#canvas;
    this.#scale = Math.min((w - 2 * MARGIN) / this.#size[0], (h - 2 * MARGIN) / this.#size[1], 1.15);
    this.#scale = Math.max(this.#scale, LEAST);
    this.#middle = [this.#size[0] / 2, this.#size[1] / 2];
  }

  zoom(by, at = this.#middle) {
    this.#touched = true;
    const next = Math.max(LEAST, Math.min(MOST, this.#scale * by));
    const kept = this.#scale / next;
    this.#middle = this.#middle.map((middle, axis) => at[axis] + (middle - at[axis]) * kept);
    this.#scale = next;
  }

  /** Move, if a box would not be seen. */
  reveal(box) {
    if (!box) return;
    const [x, y, w, h] = this.viewBox.split(" ").map(Number);
    const outside = box.x < x || box.y < y || box.x + box.w > x + w || box.y + box.h > y + h;
    if (outside) this.#middle = [box.x + box.w / 2, box.y + box.h / 2];
    this.#again();
  }

  /** From now on this element shows it. */
  watch(svg, again) {
    this.#again = again;
    if (!svg || svg === this.#svg) return;
    this.#svg = svg;
    new ResizeObserver(() => this.#resized()).observe(svg);
    svg.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    svg.addEventListener("pointerdown", (event) => this.#down(event));
    svg.addEventListener("pointermove", (event) => this.#move(event));
    svg.addEventListener("pointerup", () => (this.#drag = null));
    svg.addEventListener("pointercancel", () => (this.#drag = null));
    svg.addEventListener("keydown", (event) => this.#key(event));
  }

  #resized() {
    const { clientWidth, clientHeight } = this.#svg;
    if (!clientWidth || !clientHeight) return;
    this.#canvas = [clientWidth, clientHeight];
    if (!this.#touched) this.#begin();
    this.#again();
  }

  #wheel(event) {
    // Without Ctrl the wheel is the page's.
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = this.#svg.getBoundingClientRect();
    const at = [
      this.#middle[0] + (event.clientX - box.left - box.width / 2) / this.#scale,
      this.#middle[1] + (event.clientY - box.top - box.height / 2) / this.#scale,
    ];
    this.zoom(Math.exp(-event.deltaY / 300), at);
    this.#again();
  }

  #down(event) {
    if (event.button !== 0 || event.target.closest(".box")) return;
    this.#drag = [event.clientX, event.clientY];
    this.#svg.setPointerCapture(event.pointerId);
  }

  #move(event) {
    if (!this.#drag) return;
    this.#touched = true;
    const moved = [event.clientX - this.#drag[0], event.clientY - this.#drag[1]];
    this.#drag = [event.clientX, event.clientY];
    this.#middle = this.#middle.map((middle, axis) => middle - moved[axis] / this.#scale);
    this.#again();
  }

  #key(event) {
    const act = { "+": () => this.zoom(1.25), "=": () => this.zoom(1.25), "-": () => this.zoom(0.8), 0: () => this.fit() }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
    this.#again();
  }
}
