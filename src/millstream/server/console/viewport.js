// The viewport of a drawing: panned and zoomed with mouse, touch and keys.

const MIN_SCALE = 0.15;
const MAX_SCALE = 3;
const MARGIN = 20;
const MIN_LEGIBLE_SCALE = 0.55;

export class Viewport {
  #size = [1, 1];
  #canvas = [1000, 560];
  #scale = 1;
  #middle = [0, 0];
  #touched = false;
  #svg = null;
  #redraw = () => {};
  #drag = null;

  get viewBox() {
    const [w, h] = this.#canvas.map((each) => each / this.#scale);
    return `${this.#middle[0] - w / 2} ${this.#middle[1] - h / 2} ${w} ${h}`;
  }

  /** Show a drawing of this size. */
  show(width, height) {
    this.#size = [width, height];
    this.#begin();
  }

  /** Show the whole drawing, unless it would be illegible. */
  #begin() {
    this.fit();
    if (this.#scale >= MIN_LEGIBLE_SCALE) return;
    this.#scale = MIN_LEGIBLE_SCALE;
    const top = this.#canvas[1] / 2 / MIN_LEGIBLE_SCALE - MARGIN;
    this.#middle = [this.#size[0] / 2, Math.min(top, this.#size[1] / 2)];
  }

  fit() {
    this.#touched = false;
    const [w, h] = this.#canvas;
    this.#scale = Math.min((w - 2 * MARGIN) / this.#size[0], (h - 2 * MARGIN) / this.#size[1], 1.15);
    this.#scale = Math.max(this.#scale, MIN_SCALE);
    this.#middle = [this.#size[0] / 2, this.#size[1] / 2];
  }

  zoom(by, at = this.#middle) {
    this.#touched = true;
    const next = Math.max(MIN_SCALE, Math.min(MAX_SCALE, this.#scale * by));
    const kept = this.#scale / next;
    this.#middle = this.#middle.map((middle, axis) => at[axis] + (middle - at[axis]) * kept);
    this.#scale = next;
  }

  /** Pan if a box is not visible. */
  reveal(box) {
    if (!box) return;
    const [x, y, w, h] = this.viewBox.split(" ").map(Number);
    const outside = box.x < x || box.y < y || box.x + box.w > x + w || box.y + box.h > y + h;
    if (outside) this.#middle = [box.x + box.w / 2, box.y + box.h / 2];
    this.#redraw();
  }

  /** Attach to an element. */
  watch(svg, redraw) {
    this.#redraw = redraw;
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
    this.#redraw();
  }

  #wheel(event) {
    // Without Ctrl, the wheel scrolls the page.
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = this.#svg.getBoundingClientRect();
    const at = [
      this.#middle[0] + (event.clientX - box.left - box.width / 2) / this.#scale,
      this.#middle[1] + (event.clientY - box.top - box.height / 2) / this.#scale,
    ];
    this.zoom(Math.exp(-event.deltaY / 300), at);
    this.#redraw();
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
    this.#redraw();
  }

  #key(event) {
    const act = { "+": () => this.zoom(1.25), "=": () => this.zoom(1.25), "-": () => this.zoom(0.8), 0: () => this.fit() }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
    this.#redraw();
  }
}
