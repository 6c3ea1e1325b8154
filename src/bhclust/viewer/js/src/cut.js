// Cuts of a tree, by the rules of bhclust.posterior.cut and bhclust.coalescent.cut: the sums are
// made of the same numbers in the same order, so the labels are the same to the last tie.

// Number of (node, number of clusters) entries of the table behind cuts into a given number.
const TABLE_ENTRIES = 8e6;

const ONE = Int32Array.of(1);

export class Cutter {
  constructor(tree, rule, leastMaximum = 1) {
    this.tree = tree;
    this.rule = rule;
    const roots = tree.roots.length;
    const affordable = Math.floor(TABLE_ENTRIES / tree.nNodes);
    this.maxClusters = Math.min(tree.nLeaves, Math.max(affordable, roots, leastMaximum, 2));
    this.table = null;
  }

  /** Return `{labels, tops, cluster}`, or null where no cut has the asked number of clusters. */
  cut(mode, value) {
    let stops;
    if (mode === "map") stops = this.#mapStops();
    else if (mode === "number") stops = this.#numberStops(value);
    else stops = this.#thresholdStops(value);
    return stops && this.#labelled(stops);
  }

  /** Return the numbers of clusters that cuts can have, increasing, up to `maxClusters`. */
  possibleNumbers() {
    const numbers = [];
    if (this.rule.kind === "posterior") {
      const { total } = this.#knapsack();
      total.forEach((value, i) => value > -Infinity && numbers.push(i + 1));
      return numbers;
    }
    let count = this.tree.roots.length;
    numbers.push(count);
    for (const node of this.tree.joins) {
      count += this.tree.children(node).length - 1;
      if (count > this.maxClusters) break;
      numbers.push(count);
    }
    return numbers;
  }

  #leaves(stops) {
    stops.fill(1, 0, this.tree.nLeaves);
    return stops;
  }

  #thresholdStops(threshold) {
    const { nNodes, height } = this.tree;
    const { kind, probability, logRatio } = this.rule;
    const stops = new Uint8Array(nNodes);
    for (let node = 0; node < nNodes; node++) {
      if (kind === "posterior") stops[node] = probability[node] >= threshold;
      else if (kind === "ratio") stops[node] = !(-logRatio[node] > threshold);
      else stops[node] = height[node] <= threshold;
    }
    return this.#leaves(stops);
  }

  #mapStops() {
    const { nNodes, nLeaves, parent } = this.tree;
    const { logStop, logGo } = this.rule;
    const below = new Float64Array(nNodes);
    const stops = new Uint8Array(nNodes);
    for (let node = 0; node < nNodes; node++) {
      let best = 0;
      if (node >= nLeaves) {
        const go = logGo[node] + below[node];
        stops[node] = logStop[node] >= go; // on a tie, fewer clusters
        best = Math.max(logStop[node], go);
      }
      if (parent[node] >= 0) below[parent[node]] += best;
    }
    return this.#leaves(stops);
  }

  #numberStops(k) {
    if (this.rule.kind === "posterior") return this.#backtrack(k);
    // The youngest cut: the highest joins are split until there are enough clusters.
    const { tree } = this;
    const split = new Uint8Array(tree.nNodes);
    let count = tree.roots.length;
    for (const node of tree.joins) {
      if (count >= k) break;
      split[node] = 1;
      count += tree.children(node).length - 1;
    }
    const stops = split.map((is) => 1 - is);
    return this.#leaves(stops);
  }

  /** Best log probability of c clusters below each node, children folded in one at a time. */
  #knapsack() {
    if (this.table) return this.table;
    const { nNodes, nLeaves, parent } = this.tree;
    const { logStop, logGo } = this.rule;
    const cap = this.maxClusters;
    const root = nNodes; // above all roots of a forest
    const tables = new Array(nNodes + 1);
    const folds = new Map();
    for (let node = 0; node < nNodes; node++) {
      let table = tables[node];
      tables[node] = undefined;
      if (node < nLeaves) {
        table = new Float64Array(1);
      } else {
        for (let c = 0; c < table.length; c++) table[c] += logGo[node];
        table[0] = logStop[node]; // the children alone cannot make one cluster
      }
      const above = parent[node] >= 0 ? parent[node] : root;
      if (!tables[above]) {
        tables[above] = table.slice(0, cap);
        folds.set(above, [{ node, given: null }]);
      } else {
        const folded = fold(tables[above], table, cap);
        tables[above] = folded.best;
        folds.get(above).push({ node, given: folded.given });
      }
    }
    this.table = { total: tables[root], folds, root };
    return this.table;
  }

  #backtrack(k) {
    const { total, folds, root } = this.#knapsack();
    if (!(k >= 1) || k > total.length || total[k - 1] === -Infinity) return null;
    const stops = new Uint8Array(this.tree.nNodes);
    const todo = [[root, k]];
    while (todo.length) {
      let [node, clusters] = todo.pop();
      if (clusters === 1 && node !== root) {
        stops[node] = 1;
        continue;
      }
      const parts = folds.get(node);
      for (let i = parts.length - 1; i > 0; i--) {
        const share = parts[i].given === ONE ? 1 : parts[i].given[clusters - 1];
        todo.push([parts[i].node, share]);
        clusters -= share;
      }
      todo.push([parts[0].node, clusters]);
    }
    return stops;
  }

  /** Label leaves by the first stop on the way down: by weight, then log f, then first leaf. */
  #labelled(stops) {
    const { nNodes, nLeaves, parent, weight } = this.tree;
    const logF = this.rule.kind === "posterior" ? this.tree.logMarginal : null;
    const top = new Int32Array(nNodes).fill(-1);
    for (let node = nNodes - 1; node >= 0; node--) {
      const above = parent[node];
      if (above >= 0 && top[above] >= 0) top[node] = top[above];
      else if (stops[node]) top[node] = node;
    }
    const firstLeaf = new Int32Array(nNodes).fill(-1);
    const tops = [];
    for (let leaf = 0; leaf < nLeaves; leaf++) {
      if (firstLeaf[top[leaf]] >= 0) continue;
      firstLeaf[top[leaf]] = leaf;
      tops.push(top[leaf]);
    }
    const falling = (values, a, b) => (values[a] > values[b] ? -1 : values[a] < values[b] ? 1 : 0);
    tops.sort((a, b) => falling(weight, a, b) || (logF && falling(logF, a, b)) || firstLeaf[a] - firstLeaf[b]);
    const label = new Int32Array(nNodes).fill(-1);
    tops.forEach((node, i) => (label[node] = i));
    const cluster = top.map((node) => (node < 0 ? -1 : label[node]));
    return { tops: Int32Array.from(tops), cluster, labels: cluster.slice(0, nLeaves) };
  }
}

/** Max-plus convolution of two tables up to a cap, and the child's share in each maximum. */
function fold(table, child, cap) {
  const length = Math.min(table.length + child.length, cap);
  const best = new Float64Array(length).fill(-Infinity);
  if (child.length === 1) {
    // A leaf always takes one: the long way round for the many leaves of a chain would be slow.
    for (let i = 1; i < length; i++) best[i] = table[i - 1] + child[0];
    return { best, given: ONE };
  }
  const given = new Int32Array(length);
  const most = Math.min(child.length, cap - 1);
  for (let c = 1; c <= most; c++) {
    const width = Math.min(table.length, length - c);
    const gain = child[c - 1];
    for (let i = 0; i < width; i++) {
      const candidate = table[i] + gain;
      if (candidate > best[c + i]) {
        best[c + i] = candidate;
        given[c + i] = c;
      }
    }
  }
  return { best, given };
}
