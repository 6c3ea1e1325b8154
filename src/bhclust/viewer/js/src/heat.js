// The data beside the leaves, one byte an entry; 255 is a missing value.
import { CATEGORIES, OTHER_CATEGORY, packed, rampColour } from "./palette.js";

const MISSING = 255;
const LEVELS = 255;

export class Heat {
  constructor(heat, tree) {
    this.columns = heat.columns;
    this.codes = heat.codes;
    this.tree = tree;
    this.width = this.columns.length;
    this.ramp = Uint32Array.from({ length: LEVELS + 1 }, (_, i) => packed(rampColour(i / LEVELS)));
    this.categoryColours = Uint32Array.from(CATEGORIES, packed);
    this.other = packed(OTHER_CATEGORY);
    this.shares = this.columns.map((column) => column.levels && sharesOf(column));
    this.counts = new Uint32Array(MISSING);
    this.canvas = document.createElement("canvas");
    this.drawn = "";
    this.tips = null;
  }

  /** Average the leaves of each tip: the share of the ramp, or the most frequent category. Sums
   * over the tips so far make the mean of any stretch of them two subtractions. */
  setTips(tips) {
    const { tree, width } = this;
    this.tips = tips;
    this.level = new Float32Array(tips.length * width);
    this.sum = new Float64Array((tips.length + 1) * width);
    this.count = new Int32Array((tips.length + 1) * width);
    for (let row = 0; row < tips.length; row++) {
      const from = tree.leafFrom[tips[row]];
      const to = from + tree.size[tips[row]];
      for (let j = 0; j < width; j++) {
        const at = row * width + j;
        const level = to - from === 1 ? this.#levelOf(from, j) : this.#average(from, to, j);
        const known = !Number.isNaN(level);
        this.level[at] = level;
        this.sum[at + width] = this.sum[at] + (known ? level : 0);
        this.count[at + width] = this.count[at] + (known ? 1 : 0);
      }
    }
    this.drawn = "";
  }

  #levelOf(place, j) {
    const code = this.codes[this.tree.leafAt[place] * this.width + j];
    if (code === MISSING) return NaN;
    return this.shares[j] ? this.shares[j][code] : code;
  }

  #average(from, to, j) {
    const shares = this.shares[j];
    if (!shares) return this.#mostFrequent(j, from, to);
    let sum = 0;
    let count = 0;
    for (let place = from; place < to; place++) {
      const level = this.#levelOf(place, j);
      if (Number.isNaN(level)) continue;
      sum += level;
      count++;
    }
    return count ? sum / count : NaN;
  }

  #mostFrequent(j, from, to) {
    const counts = new Uint32Array(MISSING);
    let best = -1;
    for (let place = from; place < to; place++) {
      const code = this.codes[this.tree.leafAt[place] * this.width + j];
      if (code === MISSING) continue;
      counts[code]++;
      if (best < 0 || counts[code] > counts[best] || (counts[code] === counts[best] && code < best)) best = code;
    }
    return best < 0 ? NaN : best;
  }

  #colour(level, j) {
    if (Number.isNaN(level)) return 0;
    if (this.shares[j]) return this.ramp[Math.round(level * LEVELS)];
    return level < this.categoryColours.length ? this.categoryColours[level] : this.other;
  }

  /** Return a canvas with one row of pixels for each tip from `first` to `last`, or for each
   * screen row where tips are thinner than that. */
  image(first, last, screenRows) {
    const rows = Math.max(1, Math.min(last - first, Math.ceil(screenRows)));
    const key = `${first} ${last} ${rows}`;
    if (key === this.drawn) return this.canvas;
    this.drawn = key;
    const { canvas, width } = this;
    canvas.width = width;
    canvas.height = rows;
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const step = (last - first) / rows;
    for (let row = 0; row < rows; row++) {
      const from = Math.floor(first + row * step);
      const to = Math.max(from + 1, Math.floor(first + (row + 1) * step));
      for (let j = 0; j < width; j++) pixels[row * width + j] = this.#colour(this.#pooled(from, to, j), j);
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  #pooled(from, to, j) {
    const { level, width, sum, count } = this;
    if (to - from === 1) return level[from * width + j];
    if (this.shares[j]) {
      const number = count[to * width + j] - count[from * width + j];
      return number ? (sum[to * width + j] - sum[from * width + j]) / number : NaN;
    }
    const { counts } = this;
    let best = NaN;
    for (let row = from; row < to; row++) {
      const code = level[row * width + j];
      if (Number.isNaN(code)) continue;
      counts[code]++;
      if (Number.isNaN(best) || counts[code] > counts[best]) best = code;
    }
    for (let row = from; row < to; row++) {
      const code = level[row * width + j];
      if (!Number.isNaN(code)) counts[code] = 0;
    }
    return best;
  }

  /** Describe one entry, or the mean of the leaves below a collapsed node. */
  describe(node, j) {
    const column = this.columns[j];
    const { tree, codes, width } = this;
    const from = tree.leafFrom[node];
    const to = from + tree.size[node];
    if (column.categories) {
      const code = this.#mostFrequent(j, from, to);
      if (Number.isNaN(code)) return "missing";
      return (to - from > 1 ? "mostly " : "") + column.categories[code];
    }
    let sum = 0;
    let count = 0;
    for (let place = from; place < to; place++) {
      const code = codes[tree.leafAt[place] * width + j];
      if (code === MISSING) continue;
      sum += column.levels[code];
      count++;
    }
    if (!count) return "missing";
    const sign = to - from > 1 ? "mean " : column.exact ? "" : "≈ ";
    return sign + shortNumber(sum / count);
  }
}

function sharesOf(column) {
  const span = column.high - column.low || 1;
  return Float32Array.from(column.levels, (v) => Math.min(1, Math.max(0, (v - column.low) / span)));
}

/** Write a number with four digits. */
export function shortNumber(value) {
  if (value === null || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const text = size !== 0 && (size >= 1e6 || size < 1e-3) ? value.toExponential(2) : String(+value.toPrecision(4));
  return text.replace("-", "−");
}
