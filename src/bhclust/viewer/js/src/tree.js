// A tree as flat arrays, in the order in which it is drawn. Nothing recurses.

export class Tree {
  constructor({ nLeaves, parent, height, weight, logMarginal }) {
    this.nLeaves = nLeaves;
    this.nNodes = parent.length;
    this.parent = parent;
    this.height = height;
    this.logMarginal = logMarginal;
    this.size = this.#sizes();
    this.weight = weight ?? this.size;
    this.#sortChildren();
    this.#placeLeaves();
    this.#rankJoins();
  }

  isLeaf(node) {
    return node < this.nLeaves;
  }

  children(node) {
    return this.childList.subarray(this.childStart[node], this.childStart[node + 1]);
  }

  #sizes() {
    const size = new Float64Array(this.nNodes);
    size.fill(1, 0, this.nLeaves);
    for (let node = 0; node < this.nNodes; node++) {
      const above = this.parent[node];
      if (above >= 0) size[above] += size[node];
    }
    return size;
  }

  /** Larger children come first; among equals, the lower number. */
  #sortChildren() {
    const { parent, nNodes, size } = this;
    const start = new Int32Array(nNodes + 1);
    const roots = [];
    for (let node = 0; node < nNodes; node++) {
      if (parent[node] < 0) roots.push(node);
      else start[parent[node] + 1]++;
    }
    for (let node = 0; node < nNodes; node++) start[node + 1] += start[node];
    const list = new Int32Array(nNodes - roots.length);
    const next = start.slice();
    for (let node = 0; node < nNodes; node++) {
      if (parent[node] >= 0) list[next[parent[node]]++] = node;
    }
    const larger = (a, b) => size[b] - size[a] || a - b;
    for (let node = this.nLeaves; node < nNodes; node++) list.subarray(start[node], start[node + 1]).sort(larger);
    this.childStart = start;
    this.childList = list;
    this.roots = Int32Array.from(roots.sort(larger));
  }

  /** `leafFrom[node]` … + size: the places of a node's leaves from top to bottom. */
  #placeLeaves() {
    const from = new Int32Array(this.nNodes);
    let next = 0;
    for (const root of this.roots) {
      from[root] = next;
      next += this.size[root];
    }
    for (let node = this.nNodes - 1; node >= this.nLeaves; node--) {
      let place = from[node];
      for (const child of this.children(node)) {
        from[child] = place;
        place += this.size[child];
      }
    }
    this.leafFrom = from;
    this.leafAt = new Int32Array(this.nLeaves);
    for (let leaf = 0; leaf < this.nLeaves; leaf++) this.leafAt[from[leaf]] = leaf;
  }

  /** Joins from the highest to the lowest, parents before children, and two ways to place them. */
  #rankJoins() {
    const { height, nLeaves, nNodes } = this;
    const joins = Int32Array.from({ length: nNodes - nLeaves }, (_, i) => nNodes - 1 - i);
    joins.sort((a, b) => height[b] - height[a] || b - a);
    this.joins = joins;
    // The few joins at the top matter most: the first ten of a thousand get a third of the width.
    this.xEven = new Float64Array(nNodes).fill(1);
    const whole = Math.log(joins.length + 1) || 1;
    joins.forEach((node, rank) => (this.xEven[node] = Math.log(rank + 1) / whole));
    const highest = joins.length ? height[joins[0]] : 1;
    this.xScale = Float64Array.from(height, (h) => 1 - h / (highest || 1));
  }
}

/** Which rows the nodes stand on while some of them are collapsed. */
export class Layout {
  constructor(tree) {
    this.tree = tree;
    this.collapsed = new Uint8Array(tree.nNodes);
    this.from = new Float64Array(tree.nNodes);
    this.to = new Float64Array(tree.nNodes);
    this.y = new Float64Array(tree.nNodes);
    this.shown = new Uint8Array(tree.nNodes);
    this.rowOfPlace = new Int32Array(tree.nLeaves);
    this.update();
  }

  isTip(node) {
    return this.tree.isLeaf(node) || this.collapsed[node] === 1;
  }

  update() {
    const { tree, from, to, y, shown } = this;
    const visited = [];
    const tips = [];
    shown.fill(0);
    const stack = Array.from(tree.roots).reverse();
    while (stack.length) {
      const node = stack.pop();
      shown[node] = 1;
      from[node] = tips.length;
      if (this.isTip(node)) {
        y[node] = tips.length + 0.5;
        to[node] = tips.length + 1;
        this.rowOfPlace.fill(tips.length, tree.leafFrom[node], tree.leafFrom[node] + tree.size[node]);
        tips.push(node);
        continue;
      }
      visited.push(node);
      const children = tree.children(node);
      for (let i = children.length - 1; i >= 0; i--) stack.push(children[i]);
    }
    for (let i = visited.length - 1; i >= 0; i--) {
      const node = visited[i];
      const children = tree.children(node);
      const last = children[children.length - 1];
      to[node] = to[last];
      y[node] = (y[children[0]] + y[last]) / 2;
    }
    this.tips = Int32Array.from(tips);
  }

  /** Open every collapsed node above a node, so that it is shown. */
  reveal(node) {
    let changed = false;
    for (let above = this.tree.parent[node]; above >= 0; above = this.tree.parent[above]) {
      if (this.collapsed[above]) {
        this.collapsed[above] = 0;
        changed = true;
      }
    }
    if (changed) this.update();
    return changed;
  }

  /** Return the node itself, or the collapsed node that hides it. */
  standIn(node) {
    let seen = node;
    for (let above = this.tree.parent[node]; above >= 0; above = this.tree.parent[above]) {
      if (this.collapsed[above]) seen = above;
    }
    return seen;
  }
}
