// The controls of the cut: which rule, a slider, a number; all three always say the same.
import { scaleLinear, scaleSymlog } from "d3-scale";

const STEPS = 1000;
const WIDEST_LOGIT = 15;

// Probabilities crowd near 0 and 1: the slider moves evenly in log odds, and ends at 0 and 1.
const logitScale = {
  at: (p) => Math.min(1, Math.max(0, 0.5 + Math.log(p / (1 - p)) / (2 * WIDEST_LOGIT))),
  value: (share) => {
    if (share <= 0) return 0;
    if (share >= 1) return 1;
    const p = 1 / (1 + Math.exp(-(share - 0.5) * 2 * WIDEST_LOGIT));
    const rest = Number(Math.min(p, 1 - p).toPrecision(2));
    return p < 0.5 ? rest : Number((1 - rest).toPrecision(10));
  },
};

function fromD3(scale) {
  return { at: (v) => Math.min(1, Math.max(0, scale(v))), value: (share) => Number(scale.invert(share).toPrecision(4)) };
}

function thresholdScale(tree, rule) {
  if (rule.kind === "posterior") return logitScale;
  if (rule.kind === "height") {
    const highest = tree.joins.length ? tree.height[tree.joins[0]] : 1;
    return fromD3(scaleLinear([0, highest || 1], [0, 1]));
  }
  const ratios = Array.from(rule.logRatio.subarray(tree.nLeaves)).filter(Number.isFinite);
  const widest = ratios.reduce((most, ratio) => Math.max(most, Math.abs(ratio)), 1);
  return fromD3(scaleSymlog([-widest, widest], [0, 1]));
}

const WORDS = {
  posterior: { map: "most probable", threshold: "probability", number: "number" },
  ratio: { threshold: "likelihood ratio", number: "number" },
  height: { threshold: "height", number: "number" },
};

export class CutControls {
  constructor(app) {
    this.app = app;
    this.scale = thresholdScale(app.tree, app.rule);
    this.slider = document.getElementById("cut-slider");
    this.number = document.getElementById("cut-value");
    this.result = document.getElementById("cut-result");
    this.words = WORDS[app.rule.kind];
    this.#makeModes();
    this.slider.addEventListener("input", () => this.#slid());
    this.number.addEventListener("change", () => this.#typed());
  }

  #makeModes() {
    const box = document.getElementById("cut-modes");
    for (const [mode, words] of Object.entries(this.words)) {
      const label = document.createElement("label");
      const input = document.createElement("input");
      input.type = "radio";
      input.name = "cut-mode";
      input.value = mode;
      input.addEventListener("change", () => this.#switched(mode));
      label.append(input, ` ${words}`);
      box.append(label);
    }
  }

  /** The numbers of clusters that the slider runs through. */
  get numbers() {
    this.allNumbers ??= this.app.cutter.possibleNumbers();
    return this.allNumbers;
  }

  #switched(mode) {
    const { app } = this;
    if (mode === "number") app.setCut("number", this.#nearest(app.cut.tops.length));
    else if (mode === "threshold") app.setCut("threshold", { posterior: 0.5, ratio: 0, height: app.tree.height[app.tree.joins[0]] / 2 || 0 }[app.rule.kind]);
    else app.setCut("map", null);
  }

  #nearest(count) {
    return this.numbers.reduce((best, k) => (Math.abs(k - count) < Math.abs(best - count) ? k : best));
  }

  #slid() {
    const share = Number(this.slider.value) / STEPS;
    if (this.app.cutMode === "number") this.app.setCut("number", this.numbers[Number(this.slider.value)]);
    else this.app.setCut("threshold", this.scale.value(share));
  }

  #typed() {
    const value = Number(this.number.value);
    if (this.number.value.trim() === "" || Number.isNaN(value)) {
      this.refresh();
      return;
    }
    const { app } = this;
    if (app.cutMode === "number") app.setCut("number", this.#nearest(Math.round(value)));
    else app.setCut("threshold", app.rule.kind === "posterior" ? Math.min(1, Math.max(0, value)) : value);
  }

  /** Show what the cut is. */
  refresh() {
    const { app, slider, number } = this;
    for (const input of document.querySelectorAll("input[name=cut-mode]")) input.checked = input.value === app.cutMode;
    const isMap = app.cutMode === "map";
    slider.disabled = number.disabled = isMap;
    if (app.cutMode === "number") {
      slider.min = 0;
      slider.max = this.numbers.length - 1;
      slider.step = 1;
      slider.value = this.numbers.findIndex((k) => k >= app.cutValue);
      number.value = app.cutValue;
      number.step = 1;
    } else if (!isMap) {
      slider.min = 0;
      slider.max = STEPS;
      slider.step = 1;
      slider.value = Math.round(this.scale.at(app.cutValue) * STEPS);
      number.value = app.cutValue; // the very number that is used
      number.step = "any";
    } else {
      number.value = "";
    }
    const count = app.cut.tops.length;
    const words = count === 1 ? "1 cluster" : `${count.toLocaleString("en-US")} clusters`;
    this.result.textContent = words;
    slider.setAttribute("aria-valuetext", isMap ? words : `${this.words[app.cutMode]} ${number.value}, ${words}`);
  }
}

/** Leaves whose name holds the words, and a way through them. */
export class Search {
  constructor(app) {
    this.app = app;
    this.input = document.getElementById("search");
    this.count = document.getElementById("search-count");
    this.lower = app.names.map((name) => name.toLowerCase());
    this.input.addEventListener("input", () => this.find());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        this.step(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape") {
        event.preventDefault();
        this.clear();
        app.canvas.focus();
      }
      event.stopPropagation();
    });
    document.getElementById("search-next").addEventListener("click", () => this.step(1));
    document.getElementById("search-previous").addEventListener("click", () => this.step(-1));
  }

  find() {
    const words = this.input.value.toLowerCase();
    const { tree, picture } = this.app;
    const places = [];
    for (let place = 0; words && place < tree.nLeaves; place++) {
      const leaf = tree.leafAt[place];
      if (this.lower[leaf].includes(words)) places.push(leaf);
    }
    picture.found = { leaves: places, current: -1 };
    // A leaf of exactly this name comes first.
    const exact = places.findIndex((leaf) => this.lower[leaf] === words);
    this.at = exact - 1;
    if (exact < 0) this.at = -1;
    this.#say();
    this.app.redraw();
  }

  step(direction) {
    const { leaves } = this.app.picture.found;
    if (!leaves.length) return;
    this.at = (this.at + direction + leaves.length) % leaves.length;
    if (this.at < 0) this.at += leaves.length;
    this.app.picture.found.current = leaves[this.at];
    this.#say();
    this.app.jumpTo(leaves[this.at]);
  }

  clear() {
    this.input.value = "";
    this.find();
  }

  #say() {
    const { leaves, current } = this.app.picture.found;
    if (!this.input.value) this.count.textContent = "";
    else if (!leaves.length) this.count.textContent = "no leaf";
    else if (current < 0) this.count.textContent = leaves.length === 1 ? "1 leaf" : `${leaves.length} leaves`;
    else this.count.textContent = `${leaves.indexOf(current) + 1} of ${leaves.length}`;
  }
}
