// The picture: tree, strip of clusters, names, heat map. Drawn with a pen, from what is visible.
import { scaleLinear } from "d3-scale";
import { zoomIdentity } from "d3-zoom";

const MARGIN = 12;
const STRIP = 9;
const GAP = 8;
const TALLEST_ROW = 24;
const READABLE_ROW = 10;
const NARROWEST_LETTERED_COLUMN = 9.5;
const LONGEST_HEAD = 110;
const NAMES = { least: 96, most: 190 };
// Parts of the tree thinner than this many pixels are drawn as one line.
const FINEST = 1.2;
const REACH = 8;
// Room for the heights above a tree that is drawn to scale.
const AXIS = 20;
const LINE = 14;

export class Picture {
  constructor({ tree, layout, heat, names }) {
    Object.assign(this, { tree, layout, heat, names });
    this.transform = zoomIdentity;
    this.xZoom = { k: 1, shift: 0 };
    this.toScale = false;
    this.hits = [];
    this.chosen = -1;
    this.found = { leaves: [], current: -1 };
    this.measurer = document.createElement("canvas").getContext("2d");
  }

  textWidth(string, size = 12) {
    this.measurer.font = `${size}px system-ui, -apple-system, 'Segoe UI', sans-serif`;
    return this.measurer.measureText(string).width;
  }

  /** Shorten a string to a width in pixels, whole characters only. */
  fitted(string, width, size = 12) {
    const line = string.length > 300 ? string.slice(0, 300) : string;
    if (this.textWidth(line, size) <= width) return line;
    const letters = Array.from(line);
    let low = 0;
    let high = letters.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.textWidth(letters.slice(0, middle).join("") + "…", size) <= width) low = middle;
      else high = middle - 1;
    }
    return letters.slice(0, low).join("") + "…";
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    this.place();
  }

  /** Divide the width among the parts. */
  place() {
    const { width, height, heat } = this;
    const longest = this.#longestName();
    const namesWidth = Math.min(NAMES.most, Math.max(NAMES.least, longest + 6), width * 0.25);
    const heatWidth = heat ? Math.min(heat.width * 18, (width - namesWidth) * 0.42) : 0;
    const heatLeft = width - MARGIN - heatWidth;
    const namesLeft = heatLeft - (heat ? GAP : 0) - namesWidth;
    const stripLeft = namesLeft - GAP - STRIP;
    this.columnWidth = heat ? heatWidth / heat.width : 0;
    this.lettered = this.columnWidth >= NARROWEST_LETTERED_COLUMN;
    const head = this.lettered ? this.#longestColumn() : 0;
    const top = MARGIN + Math.max(head ? head + 6 : 0, this.toScale ? AXIS : 0);
    const columns = { treeLeft: MARGIN, treeRight: stripLeft - 4, stripLeft, namesLeft, namesWidth, heatLeft, heatWidth };
    this.box = { top, bottom: height - MARGIN, ...columns };
    const room = this.box.bottom - top;
    const rows = this.layout.tips.length;
    this.baseRow = Math.min(TALLEST_ROW, room / rows);
    this.maxZoom = Math.max(1, 1.5 * TALLEST_ROW / this.baseRow);
  }

  #longestName() {
    if (this.longestName === undefined) {
      const byLength = this.names.slice().sort((a, b) => b.length - a.length).slice(0, 60);
      this.longestName = Math.max(...byLength.map((name) => this.textWidth(name.slice(0, 60))));
    }
    return this.longestName;
  }

  #longestColumn() {
    const widths = this.heat.columns.map((column) => this.textWidth(column.name.slice(0, 60), 11));
    return Math.min(LONGEST_HEAD, Math.max(...widths) + 2);
  }

  get row() {
    return this.baseRow * this.transform.k;
  }

  /** The vertical extent of the whole tree before zooming. */
  get content() {
    return [this.box.top, this.box.top + this.baseRow * this.layout.tips.length];
  }

  y(row) {
    return this.transform.applyY(this.box.top + row * this.baseRow);
  }

  rowAt(y) {
    return (this.transform.invertY(y) - this.box.top) / this.baseRow;
  }

  x(node) {
    const share = (this.toScale ? this.tree.xScale : this.tree.xEven)[node];
    const { treeLeft, treeRight } = this.box;
    return treeLeft + (share * this.xZoom.k + this.xZoom.shift) * (treeRight - treeLeft);
  }

  zoomX(factor, at) {
    const { treeLeft, treeRight } = this.box;
    const place = (at - treeLeft) / (treeRight - treeLeft);
    const k = Math.min(1e4, Math.max(1, this.xZoom.k * factor));
    this.setX(k, place - ((place - this.xZoom.shift) * k) / this.xZoom.k);
  }

  setX(k, shift) {
    this.xZoom = { k, shift: Math.min(0, Math.max(1 - k, shift)) };
  }

  panX(pixels) {
    const { treeLeft, treeRight } = this.box;
    this.setX(this.xZoom.k, this.xZoom.shift + pixels / (treeRight - treeLeft));
  }

  colourOf(node) {
    const label = this.cut.cluster[node];
    return label < 0 ? this.theme.mixed : this.colours[label];
  }

  draw(pen) {
    const { box, width, height, theme } = this;
    pen.rect(0, 0, width, height, theme.paper);
    pen.clipped(0, box.top - 4, width, box.bottom - box.top + 8, () => {
      this.#drawBand(pen);
      this.#drawStrip(pen);
      this.#drawNames(pen);
      if (this.heat) this.#drawHeat(pen);
    });
    pen.clipped(0, box.top - 4, box.stripLeft, box.bottom - box.top + 8, () => this.#drawTree(pen));
    if (this.heat) this.#drawHeads(pen);
    if (this.toScale) this.#drawAxis(pen);
  }

  #drawAxis(pen) {
    const { box, theme, xZoom } = this;
    const highest = this.tree.joins.length ? this.tree.height[this.tree.joins[0]] : 0;
    if (!highest) return;
    const heightAt = (share) => (1 - (share - xZoom.shift) / xZoom.k) * highest;
    const axis = scaleLinear([heightAt(0), heightAt(1)], [box.treeLeft, box.treeRight]);
    const write = axis.tickFormat(6, "~g");
    const y = box.top - 8;
    const lines = [box.treeLeft, y, box.treeRight, y];
    for (const tick of axis.ticks(6)) {
      const x = axis(tick);
      lines.push(x, y, x, y - 4);
      const anchor = x - box.treeLeft < 16 ? "start" : box.treeRight - x < 16 ? "end" : "middle";
      pen.text(write(tick), x, y - 11, { fill: theme.faint, size: 11, anchor });
    }
    pen.lines(theme.faint, 1, lines);
  }

  /** A band behind the rows of the chosen node, and marks at the leaves that were found. */
  #drawBand(pen) {
    const { box, width, theme } = this;
    if (this.chosen >= 0) {
      const seen = this.layout.standIn(this.chosen);
      const y = this.y(this.layout.from[seen]);
      pen.rect(0, y, width, Math.max(2, this.y(this.layout.to[seen]) - y), theme.band);
    }
    const mark = (leaf, colour) => {
      const y = this.y(this.layout.rowOfPlace[this.tree.leafFrom[leaf]]);
      if (y > box.bottom || y + this.row < box.top) return;
      if (colour === theme.match && Math.round(y) === last) return; // many may share a pixel
      last = Math.round(y);
      pen.rect(box.stripLeft, y, box.namesLeft + box.namesWidth - box.stripLeft, Math.max(2, this.row), colour);
    };
    let last = NaN;
    for (const leaf of this.found.leaves) mark(leaf, theme.match);
    if (this.found.current >= 0) mark(this.found.current, theme.found);
  }

  /** Draw from the roots down what is in sight and not covered by what is there already. */
  #drawTree(pen) {
    const { tree, layout, box, row } = this;
    const ink = new Ink(this.width, this.height);
    const { k, y: shift } = this.transform;
    const scale = this.baseRow * k;
    const origin = box.top * k + shift;
    this.hits = [];
    const stack = Array.from(tree.roots);
    while (stack.length) {
      const node = stack.pop();
      if (origin + layout.to[node] * scale < box.top || origin + layout.from[node] * scale > box.bottom) continue;
      const here = this.x(node);
      const above = tree.parent[node];
      const start = above < 0 ? here - 6 : this.x(above);
      const y = origin + layout.y[node] * scale;
      const isFine = (layout.to[node] - layout.from[node]) * scale < FINEST;
      if (isFine || layout.isTip(node)) {
        this.#drawTip(pen, ink, node, isFine, start, here, y);
        continue;
      }
      const children = tree.children(node);
      const first = Math.max(box.top - 10, origin + layout.y[children[0]] * scale);
      const last = Math.min(box.bottom + 10, origin + layout.y[children[children.length - 1]] * scale);
      const colour = this.colourOf(node);
      ink.across(colour, start, here, y);
      if (ink.down(colour, here, first, last)) this.hits.push({ node, x0: start, x1: here, y, top: first, bottom: last });
      for (const child of children) stack.push(child);
    }
    const width = row > 5 ? 1.6 : 1;
    for (const [colour, points] of ink.lines) pen.lines(colour, width, points);
    this.#drawChosen(pen);
  }

  #drawTip(pen, ink, node, isFine, start, here, y) {
    const { treeRight } = this.box;
    const colour = this.colourOf(node);
    const isWedge = this.layout.collapsed[node] === 1 && !isFine;
    if (!ink.across(colour, start, treeRight, y)) return;
    if (isWedge) {
      const half = Math.min(this.row * 0.42, 9);
      pen.polygon([here, y, treeRight, y - half, treeRight, y + half], colour);
    }
    this.hits.push({ node, x0: start, x1: treeRight, y, top: y, bottom: y });
  }

  #drawChosen(pen) {
    if (this.chosen < 0) return;
    const seen = this.layout.standIn(this.chosen);
    const hit = this.hits.find(({ node }) => node === seen);
    if (!hit) return;
    const points = [hit.x0, hit.y, hit.x1, hit.y, hit.x1, hit.top, hit.x1, hit.bottom];
    pen.lines(this.theme.ink, 3, points);
    pen.rect(hit.x1 - 4, hit.y - 4, 8, 8, this.theme.ink);
  }

  /** Calls back with the label and the vertical extent of each cluster that is in sight. */
  #clustersInSight(callback) {
    const { box, layout } = this;
    this.cut.tops.forEach((node, label) => {
      if (!layout.shown[node]) return;
      const top = Math.max(box.top, this.y(layout.from[node]));
      const bottom = Math.min(box.bottom, this.y(layout.to[node]));
      if (bottom > top) callback(label, node, top, bottom);
    });
  }

  #drawStrip(pen) {
    const { box } = this;
    this.#clustersInSight((label, node, top, bottom) => {
      const gap = bottom - top > 4 ? 0.5 : 0;
      pen.rect(box.stripLeft, top + gap, STRIP, bottom - top - 2 * gap, this.colours[label]);
    });
  }

  #visibleTips() {
    const first = Math.max(0, Math.floor(this.rowAt(this.box.top)));
    const last = Math.min(this.layout.tips.length, Math.ceil(this.rowAt(this.box.bottom)));
    return [first, Math.max(first, last)];
  }

  /** Say how many rows a node has, with its cluster where it is in one. */
  #partInWords(node) {
    const label = this.cut.cluster[node];
    return (label < 0 ? "" : `${label} · `) + rowsInWords(this.tree.size[node]);
  }

  #drawNames(pen) {
    const { box, layout, tree, theme, row } = this;
    const ink = theme.ink;
    if (row < READABLE_ROW) {
      const labels = [];
      const taken = [];
      this.#clustersInSight((label, node, top, bottom) => labels.push([node, (top + bottom) / 2, bottom - top]));
      // Where clusters are thinner than a line of text, the larger ones keep their words.
      labels.sort((a, b) => b[2] - a[2]);
      for (const [node, middle, room] of labels) {
        if (room < 4 || taken.some((y) => Math.abs(y - middle) < LINE)) continue;
        taken.push(middle);
        pen.text(this.fitted(this.#partInWords(node), box.namesWidth), box.namesLeft, middle, { fill: ink });
      }
      return;
    }
    const size = Math.min(12, row * 0.85);
    const [first, last] = this.#visibleTips();
    for (let i = first; i < last; i++) {
      const node = layout.tips[i];
      const y = this.y(i + 0.5);
      if (y < box.top + size / 2 - 4 || y > box.bottom - size / 2 + 4) continue; // would be cut off
      const isLeaf = tree.isLeaf(node);
      const name = isLeaf ? this.names[node] : `▸ ${this.#partInWords(node)}`;
      const look = { fill: isLeaf ? ink : theme.faint, size };
      pen.text(this.fitted(name, box.namesWidth, size), box.namesLeft, y, look);
    }
  }

  #drawHeat(pen) {
    const [first, last] = this.#visibleTips();
    if (last <= first) return;
    const top = this.y(first);
    const height = this.y(last) - top;
    pen.rect(this.box.heatLeft, top, this.box.heatWidth, height, this.theme.missing);
    pen.image(this.heat.image(first, last, height), this.box.heatLeft, top, this.box.heatWidth, height);
  }

  #drawHeads(pen) {
    if (!this.lettered) return;
    const { box, theme, heat } = this;
    const size = Math.min(11, this.columnWidth - 1);
    heat.columns.forEach((column, j) => {
      const x = box.heatLeft + (j + 0.5) * this.columnWidth;
      pen.text(this.fitted(column.name, LONGEST_HEAD, size), x, box.top - 6, { fill: theme.ink, size, turned: true });
    });
  }

  /** Return what is under a point: a node, and a column where it is in the heat map. */
  pick(x, y) {
    const { box } = this;
    if (x >= box.stripLeft) {
      const row = Math.floor(this.rowAt(y));
      if (row < 0 || row >= this.layout.tips.length || y < box.top || y > box.bottom) return null;
      const column = this.heat && x >= box.heatLeft ? Math.floor((x - box.heatLeft) / this.columnWidth) : -1;
      if (column >= (this.heat?.width ?? 0)) return null;
      return { node: this.layout.tips[row], column };
    }
    let best = null;
    let least = REACH;
    for (const hit of this.hits) {
      const along = Math.hypot(Math.max(hit.x0 - x, 0, x - hit.x1), hit.y - y);
      const across = Math.hypot(hit.x1 - x, Math.max(hit.top - y, 0, y - hit.bottom));
      const distance = Math.min(along, across);
      if (distance < least) [best, least] = [hit, distance];
    }
    return best && { node: best.node, column: -1 };
  }

  /** Return a point on the branch of a node, if it is drawn. */
  pointOf(node) {
    const hit = this.hits.find((one) => one.node === node);
    return hit ? { x: (hit.x0 + hit.x1) / 2, y: hit.y } : null;
  }
}

/** Collects lines by colour, without those that fall on pixels which are drawn already. */
class Ink {
  constructor(width, height) {
    this.lines = new Map();
    this.rowFrom = new Float32Array(Math.ceil(height) + 1).fill(Infinity);
    this.rowTo = new Float32Array(Math.ceil(height) + 1).fill(-Infinity);
    this.columnFrom = new Float32Array(Math.ceil(width) + 1).fill(Infinity);
    this.columnTo = new Float32Array(Math.ceil(width) + 1).fill(-Infinity);
  }

  across(colour, x0, x1, y) {
    return this.#mark(this.rowFrom, this.rowTo, y, x0, x1) && this.#add(colour, x0, y, x1, y);
  }

  down(colour, x, y0, y1) {
    return this.#mark(this.columnFrom, this.columnTo, x, y0, y1) && this.#add(colour, x, y0, x, y1);
  }

  /** Say whether a stretch shows anything new on its row or column of pixels, and keep it. */
  #mark(from, to, at, start, end) {
    const pixel = Math.round(at);
    if (pixel < 0 || pixel >= from.length) return true;
    if (start >= from[pixel] - 0.5 && end <= to[pixel] + 0.5) return false;
    // Only one stretch is kept: one that touches it grows it, a larger one takes its place.
    if (start <= to[pixel] && end >= from[pixel]) {
      from[pixel] = Math.min(from[pixel], start);
      to[pixel] = Math.max(to[pixel], end);
    } else if (end - start > to[pixel] - from[pixel]) {
      from[pixel] = start;
      to[pixel] = end;
    }
    return true;
  }

  #add(colour, x0, y0, x1, y1) {
    let points = this.lines.get(colour);
    if (!points) this.lines.set(colour, (points = []));
    points.push(x0, y0, x1, y1);
    return true;
  }
}

const grouped = new Intl.NumberFormat("en-US");

export function rowsInWords(count) {
  return count === 1 ? "1 row" : `${grouped.format(count)} rows`;
}
