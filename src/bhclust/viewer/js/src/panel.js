// What is known about the chosen node, and the features that speak for its split. Strings from
// the data become text nodes, never markup.
import { rowsInWords } from "./picture.js";
import { shortNumber } from "./heat.js";

const CHILD_MARKS = ["①", "②", "③", "④"];

function element(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Return pairs of words that describe a node. */
export function factsOf(app, node) {
  const { tree, rule } = app;
  const facts = [];
  const isLeaf = tree.isLeaf(node);
  if (!isLeaf) facts.push(["rows", tree.size[node].toLocaleString("en-US")]);
  if (tree.weight !== tree.size) facts.push(["weight", shortNumber(tree.weight[node])]);
  if (!isLeaf && rule.kind === "posterior") {
    facts.push(["probability", probabilityInWords(rule.probability[node])]);
    facts.push(["log odds", shortNumber(rule.logStop[node] - rule.logGo[node])]);
  } else if (!isLeaf && rule.kind === "ratio") {
    facts.push(["log likelihood ratio", shortNumber(rule.logRatio[node])]);
  }
  if (!isLeaf) facts.push([rule.kind === "ratio" ? "age" : "height", shortNumber(tree.height[node])]);
  const label = app.cut.cluster[node];
  if (label >= 0) facts.push(["cluster", String(label)]);
  else facts.push(["clusters below", String(app.cut.tops.filter((top) => isBelow(tree, top, node)).length)]);
  return facts;
}

function isBelow(tree, node, above) {
  const from = tree.leafFrom[above];
  return tree.leafFrom[node] >= from && tree.leafFrom[node] < from + tree.size[above];
}

function probabilityInWords(p) {
  if (p > 0.9995 && p < 1) return "> 0.999";
  if (p < 0.0005 && p > 0) return "< 0.001";
  return p.toFixed(3);
}

export function nameOf(app, node) {
  return app.tree.isLeaf(node) ? app.names[node] : `Node ${node}`;
}

export class Panel {
  constructor(app) {
    this.app = app;
    this.kind = "split";
    this.root = document.getElementById("chosen");
    this.title = document.getElementById("chosen-title");
    this.facts = document.getElementById("chosen-facts");
    this.bars = document.getElementById("bars");
    this.note = document.getElementById("bars-note");
    this.toggle = document.getElementById("collapse");
    for (const input of document.querySelectorAll("input[name=explain]")) {
      input.addEventListener("change", () => {
        this.kind = input.value;
        this.show(app.chosen);
      });
    }
  }

  show(node) {
    const { app } = this;
    const nothing = node < 0;
    this.root.classList.toggle("empty", nothing);
    this.facts.replaceChildren();
    this.bars.replaceChildren();
    this.note.textContent = "";
    if (nothing) {
      this.title.textContent = "Nothing chosen";
      return;
    }
    this.title.textContent = nameOf(app, node);
    for (const [term, value] of factsOf(app, node)) {
      const pair = element("div");
      pair.append(element("dt", "", term), element("dd", "", value));
      this.facts.append(pair);
    }
    const isLeaf = app.tree.isLeaf(node);
    this.toggle.disabled = isLeaf;
    this.toggle.textContent = app.layout.collapsed[node] ? "Expand" : "Collapse";
    this.#explain(node, isLeaf);
  }

  #explain(node, isLeaf) {
    const { explain, tree } = this.app;
    document.getElementById("explain").hidden = !explain;
    if (!explain) return;
    document.getElementById("explain-kinds").hidden = !explain.rest;
    const subject = isLeaf ? tree.parent[node] : node;
    const part = explain[this.kind];
    const place = explain.place.get(subject);
    if (place === undefined || !part || Number.isNaN(part.total[place])) {
      this.note.textContent = this.#whyNothing(subject, place, part);
      return;
    }
    const bars = this.#barsAt(part, place, explain.top);
    const longest = Math.max(...bars.map((bar) => Math.abs(bar.factor)), 1e-12);
    for (const bar of bars) this.bars.append(this.#bar(bar, longest, part.sides));
    this.note.textContent = this.#legend(subject, isLeaf, part.total[place], bars);
  }

  #whyNothing(subject, place, part) {
    if (subject < 0) return "This leaf stands alone: there is no split to explain.";
    if (place === undefined) return "Features are stored for the largest nodes only; choose one nearer to the root.";
    if (!part || this.app.tree.parent[subject] < 0) return "The root holds all rows: there is no rest to compare it with.";
    return "There is nothing to explain here.";
  }

  #barsAt(part, place, top) {
    const bars = [];
    for (let i = place * top; i < (place + 1) * top && part.feature[i] >= 0; i++) {
      const sides = [];
      for (let s = 0; part.values && s < part.sides; s++) sides.push(part.values[i * part.sides + s]);
      bars.push({ feature: part.feature[i], factor: part.factor[i], sides });
    }
    return bars;
  }

  #bar({ feature, factor, sides }, longest) {
    const info = this.app.explain.features[feature];
    const row = element("li", factor >= 0 ? "for" : "against");
    const name = element("span", "feature", info.name);
    name.title = info.name;
    const track = element("span", "track");
    const fill = element("span", "fill");
    fill.style.width = `${(100 * Math.abs(factor)) / longest}%`;
    track.append(fill);
    const value = element("span", "factor", shortNumber(factor));
    row.append(name, value, track);
    const words = sides.filter((v) => !Number.isNaN(v)).map((v) => sideInWords(info, v));
    if (words.length > 1) row.append(element("span", "sides", this.#contrast(words)));
    return row;
  }

  #contrast(words) {
    if (this.kind === "rest") return `here ${words[0]}, elsewhere ${words[1]}`;
    return words.map((word, i) => `${CHILD_MARKS[i]} ${word}`).join("  ");
  }

  #legend(subject, isLeaf, total, bars) {
    const { tree } = this.app;
    const whose = isLeaf ? "The split right above this leaf. " : "";
    const rest = total - bars.reduce((sum, bar) => sum + bar.factor, 0);
    const others = bars.length < this.app.explain.nFeatures ? `, ${shortNumber(rest)} from other features` : "";
    // Columns that evolve together do not add up.
    const alone = this.app.explain.additive ? `${others}. ` : "; each column by itself, as if it were the only one. ";
    const sum = `Log Bayes factor ${shortNumber(total)} in all${alone}`;
    if (this.kind === "rest") return `${whose}${sum}Positive: speaks for keeping these rows apart from all others.`;
    const children = Array.from(tree.children(subject));
    const marks = children.slice(0, CHILD_MARKS.length).map((child, i) => `${CHILD_MARKS[i]} ${rowsInWords(tree.size[child])}`);
    const more = children.length > CHILD_MARKS.length ? ` and ${children.length - CHILD_MARKS.length} more` : "";
    return `${whose}${sum}Positive: speaks for the split. From top to bottom: ${marks.join(", ")}${more}.`;
  }
}

function sideInWords(info, value) {
  if (info.kind === "categorical") return info.categories[value] ?? "–";
  if (info.kind === "binary") return `${Math.round(100 * value)} %`;
  return shortNumber(value);
}
