// Puts the page together: state, zooming, pointing, and what the buttons do.
import { select } from "d3-selection";
import { zoom, zoomIdentity } from "d3-zoom";

import { CutControls, Search } from "./controls.js";
import { Cutter } from "./cut.js";
import { readPayload } from "./data.js";
import { labelsAsCsv, offer, pictureAsPng, pictureAsSvg } from "./download.js";
import { Heat } from "./heat.js";
import { listenToKeys } from "./keyboard.js";
import { clusterColours, rampColour } from "./palette.js";
import { factsOf, nameOf, Panel } from "./panel.js";
import { CanvasPen } from "./pens.js";
import { Picture } from "./picture.js";
import { Layout, Tree } from "./tree.js";

const byId = (id) => document.getElementById(id);

class App {
  constructor(page) {
    this.page = page;
    this.rule = page.rule;
    this.explain = page.explain;
    this.tree = new Tree(page.tree);
    this.names = page.names ?? Array.from({ length: this.tree.nLeaves }, (_, i) => String(i));
    this.layout = new Layout(this.tree);
    this.heat = page.heat && new Heat(page.heat, this.tree);
    this.heat?.setTips(this.layout.tips);
    this.cutter = new Cutter(this.tree, page.rule, page.start.mode === "number" ? page.start.value : 1);
    this.picture = new Picture(this);
    this.picture.toScale = page.toScale;
    this.chosen = -1;
    this.canvas = byId("tree");
    this.pen = new CanvasPen(this.canvas.getContext("2d"));
    this.tooltip = byId("tooltip");
    this.panel = new Panel(this);
    this.controls = new CutControls(this);
    this.search = new Search(this);
    this.#showHeading();
    this.#readTheme();
    this.#prepareZoom();
    this.#prepareButtons();
    this.#preparePointing();
    listenToKeys(this);
    this.setCut(page.start.mode, page.start.value);
    this.panel.show(-1);
    this.#resize();
    new ResizeObserver(() => this.#resize()).observe(byId("stage"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.#readTheme();
      this.#recolour();
    });
  }

  #showHeading() {
    const { page } = this;
    byId("title").textContent = document.title = page.title;
    byId("facts").textContent = page.facts.join(" · ");
    byId("heat-note").textContent = page.heat?.note ?? "";
    byId("legend").hidden = !page.heat;
    const bar = byId("ramp").getContext("2d");
    for (let x = 0; x < 64; x++) {
      bar.fillStyle = rampColour(x / 63);
      bar.fillRect(x, 0, 1, 8);
    }
  }

  #readTheme() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const names = ["ink", "faint", "paper", "mixed", "band", "match", "found", "missing"];
    this.picture.theme = Object.fromEntries(names.map((name) => [name, colour(name)]));
    this.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  }

  #resize() {
    const { clientWidth, clientHeight } = byId("stage");
    if (!clientWidth || !clientHeight) return;
    const ratio = window.devicePixelRatio || 1;
    const { canvas } = this;
    canvas.width = Math.round(clientWidth * ratio);
    canvas.height = Math.round(clientHeight * ratio);
    this.pen.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.picture.resize(clientWidth, clientHeight);
    this.#constrain();
  }

  // -- drawing ----------------------------------------------------------------------------------

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (!this.picture.width) return;
      this.picture.draw(this.pen);
      if (this.firstPaint === undefined) this.firstPaint = performance.now();
    });
  }

  #recolour() {
    this.picture.cut = this.cut;
    this.picture.colours = clusterColours(this.tree, this.cut.tops, this.dark);
    this.redraw();
  }

  /** Rows have changed: place everything anew and stay near the same node. */
  #relayout(anchor) {
    const { picture, layout } = this;
    const before = anchor >= 0 ? picture.y(layout.y[layout.standIn(anchor)]) : null;
    layout.update();
    this.heat?.setTips(layout.tips);
    picture.place();
    this.#constrain();
    if (before !== null) this.#moveBy(before - picture.y(layout.y[layout.standIn(anchor)]));
    this.panel.show(this.chosen);
  }

  // -- the cut ----------------------------------------------------------------------------------

  setCut(mode, value) {
    const cut = this.cutter.cut(mode, value);
    if (!cut) return false;
    this.cut = cut;
    this.cutMode = mode;
    this.cutValue = value;
    this.#recolour();
    this.controls.refresh();
    if (this.chosen >= 0) this.panel.show(this.chosen);
    return true;
  }

  // -- zooming ----------------------------------------------------------------------------------

  #prepareZoom() {
    let last = zoomIdentity;
    this.zoom = zoom()
      .filter((event) => !event.button && !(event.type === "wheel" && event.shiftKey))
      .on("zoom", ({ transform, sourceEvent }) => {
        this.picture.transform = transform;
        if (sourceEvent && /move/.test(sourceEvent.type)) this.picture.panX(transform.x - last.x);
        last = transform;
        this.redraw();
      });
    this.surface = select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.shiftKey) return;
      event.preventDefault();
      this.picture.zoomX(2 ** (-(event.deltaY || event.deltaX) * 0.002), event.offsetX);
      this.redraw();
    });
  }

  #constrain() {
    const { picture, zoom: behaviour, surface } = this;
    const { box, width } = picture;
    const [top, bottom] = picture.content;
    behaviour
      .extent([[0, box.top], [width, Math.max(box.bottom, box.top + 1)]])
      .scaleExtent([1, picture.maxZoom])
      .translateExtent([[-Infinity, top], [Infinity, bottom]]);
    surface.call(behaviour.translateBy, 0, 0);
    this.redraw();
  }

  #moveBy(pixels) {
    this.surface.call(this.zoom.translateBy, 0, pixels / this.picture.transform.k);
  }

  /** Zoom about the chosen node where it is in sight, else about the middle. */
  zoomBy(factor) {
    const { box, layout } = { box: this.picture.box, layout: this.layout };
    let y = (box.top + box.bottom) / 2;
    if (this.chosen >= 0) {
      const at = this.picture.y(layout.y[layout.standIn(this.chosen)]);
      if (at > box.top && at < box.bottom) y = at;
    }
    this.surface.call(this.zoom.scaleBy, factor, [this.picture.width / 2, y]);
  }

  fit() {
    this.picture.setX(1, 0);
    this.surface.call(this.zoom.transform, zoomIdentity);
    this.#constrain();
  }

  /** Fill the picture with one node. */
  focusOn(node) {
    if (node < 0) return;
    this.layout.reveal(node) && this.#relayout(-1);
    const { picture, layout, tree } = this;
    const rows = Math.max(layout.to[node] - layout.from[node], 1);
    const { box } = picture;
    const k = Math.min(picture.maxZoom, Math.max(1, (box.bottom - box.top) / ((rows + 1) * picture.baseRow)));
    const middle = box.top + ((layout.from[node] + layout.to[node]) / 2) * picture.baseRow;
    const above = tree.parent[node];
    const left = above < 0 ? 0 : (picture.toScale ? tree.xScale : tree.xEven)[above];
    const kx = Math.min(1e4, 1 / Math.max(1e-4, 1 - left));
    picture.setX(kx, -left * kx);
    this.surface.call(this.zoom.transform, zoomIdentity.translate(0, (box.top + box.bottom) / 2 - k * middle).scale(k));
    this.#constrain();
  }

  /** Move a node into sight without changing the scale. */
  bringIntoSight(node) {
    const { picture, layout } = this;
    const { box } = picture;
    const y = picture.y(layout.y[layout.standIn(node)]);
    if (y < box.top + 10) this.#moveBy(box.top + 60 - y);
    else if (y > box.bottom - 10) this.#moveBy(box.bottom - 60 - y);
    const { treeLeft, treeRight } = box;
    const x = picture.x(layout.standIn(node));
    if (x < treeLeft) picture.panX(treeLeft + 30 - x);
    else if (x > treeRight) picture.panX(treeRight - 30 - x);
    this.redraw();
  }

  // -- choosing, collapsing, finding --------------------------------------------------------------

  choose(node, bring = false) {
    this.chosen = this.picture.chosen = node;
    this.panel.show(node);
    if (node >= 0) {
      const facts = factsOf(this, node).map(([term, value]) => `${term} ${value}`);
      byId("announcement").textContent = `${nameOf(this, node)}: ${facts.join(", ")}`;
      if (bring) this.bringIntoSight(node);
    }
    this.redraw();
  }

  toggle(node) {
    if (node < 0 || this.tree.isLeaf(node)) return;
    this.layout.collapsed[node] = 1 - this.layout.collapsed[node];
    this.#relayout(node);
  }

  collapseToClusters() {
    this.layout.collapsed.fill(0);
    for (const node of this.cut.tops) if (!this.tree.isLeaf(node)) this.layout.collapsed[node] = 1;
    this.#relayout(-1);
    this.fit();
  }

  expandAll() {
    this.layout.collapsed.fill(0);
    this.#relayout(-1);
  }

  /** Show a leaf large enough to read, choose it, and put it in the middle. */
  jumpTo(leaf) {
    this.layout.reveal(leaf) && this.#relayout(-1);
    const { picture, layout } = this;
    const { box } = picture;
    const k = Math.min(picture.maxZoom, Math.max(picture.transform.k, 16 / picture.baseRow));
    const y = box.top + layout.y[leaf] * picture.baseRow;
    const place = zoomIdentity.translate(picture.transform.x, (box.top + box.bottom) / 2 - k * y).scale(k);
    this.surface.call(this.zoom.transform, place);
    this.#constrain();
    this.choose(leaf);
  }

  // -- pointing -----------------------------------------------------------------------------------

  #preparePointing() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) this.#hideTooltip();
      else this.#point(event);
    });
    canvas.addEventListener("pointerleave", () => this.#hideTooltip());
    canvas.addEventListener("click", (event) => {
      const hit = this.picture.pick(event.offsetX, event.offsetY);
      this.choose(hit ? hit.node : -1);
    });
    canvas.addEventListener("dblclick", (event) => {
      const hit = this.picture.pick(event.offsetX, event.offsetY);
      if (hit) this.toggle(hit.node);
    });
  }

  #point(event) {
    const hit = this.picture.pick(event.offsetX, event.offsetY);
    this.canvas.style.cursor = hit ? "pointer" : "grab";
    if (!hit) {
      this.#hideTooltip();
      return;
    }
    const lines = [nameOf(this, hit.node)];
    if (hit.column >= 0) {
      const column = this.heat.columns[hit.column];
      lines.push(`${column.name}: ${this.heat.describe(hit.node, hit.column)}`);
    } else {
      lines.push(...factsOf(this, hit.node).map(([term, value]) => `${term}: ${value}`));
    }
    const { tooltip } = this;
    tooltip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    tooltip.hidden = false;
    const { width, height } = this.picture;
    const x = Math.min(event.offsetX + 14, width - tooltip.offsetWidth - 6);
    const below = event.offsetY + 16;
    const y = below + tooltip.offsetHeight > height ? event.offsetY - tooltip.offsetHeight - 10 : below;
    tooltip.style.transform = `translate(${Math.max(0, x)}px, ${Math.max(0, y)}px)`;
  }

  #hideTooltip() {
    this.tooltip.hidden = true;
  }

  // -- buttons ------------------------------------------------------------------------------------

  #prepareButtons() {
    const on = (id, action) => byId(id).addEventListener("click", action);
    on("zoom-in", () => this.zoomBy(1.6));
    on("zoom-out", () => this.zoomBy(1 / 1.6));
    on("zoom-fit", () => this.fit());
    on("collapse", () => this.toggle(this.chosen));
    on("focus", () => this.focusOn(this.chosen));
    on("collapse-clusters", () => this.collapseToClusters());
    on("expand-all", () => this.expandAll());
    on("show-help", () => byId("help").showModal());
    const text = (content, type) => new Blob([content], { type: `${type};charset=utf-8` });
    on("download-labels", () => offer("labels.csv", text(labelsAsCsv(this.names, this.cut.labels), "text/csv")));
    on("download-svg", () => offer("tree.svg", text(pictureAsSvg(this.picture, this.page.title), "image/svg+xml")));
    on("download-png", async () => offer("tree.png", await pictureAsPng(this.picture)));
    const spacing = byId("spacing");
    spacing.value = this.picture.toScale ? "scale" : "even";
    spacing.addEventListener("change", () => {
      this.picture.toScale = spacing.value === "scale";
      this.picture.setX(1, 0);
      this.picture.place();
      this.#constrain();
    });
  }
}

const app = new App(readPayload(byId("bhclust-data")));

// For those who drive the page by script: the labels of any cut, and what is shown.
window.bhclustView = {
  get firstPaint() {
    return app.firstPaint;
  },
  get maxClusters() {
    return app.cutter.maxClusters;
  },
  cut: (mode, value) => {
    const cut = app.cutter.cut(mode, value);
    return cut && Array.from(cut.labels);
  },
  labels: () => Array.from(app.cut.labels),
  state: () => ({
    mode: app.cutMode,
    value: app.cutValue,
    nClusters: app.cut.tops.length,
    chosen: app.chosen,
    nTips: app.layout.tips.length,
    zoom: app.picture.transform.k,
    row: app.picture.row,
    found: app.picture.found.leaves.length,
  }),
  pointOf: (node) => app.picture.pointOf(node),
  children: (node) => Array.from(app.tree.children(node)),
  roots: () => Array.from(app.tree.roots),
  names: () => app.names,
};
