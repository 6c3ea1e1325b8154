// Keys on the canvas: arrows walk the tree, others do what the buttons do.

/** Return the neighbour of a node in the picture, at its depth where there is one. */
export function neighbour(app, node, direction) {
  const { tree, layout } = app;
  let depth = 0;
  let at = node;
  for (;;) {
    const above = tree.parent[at];
    const siblings = above < 0 ? tree.roots : tree.children(above);
    const place = siblings.indexOf(at) + direction;
    if (place >= 0 && place < siblings.length) {
      at = siblings[place];
      break;
    }
    if (above < 0) return node;
    at = above;
    depth++;
  }
  while (depth > 0 && !layout.isTip(at)) {
    const children = tree.children(at);
    at = direction > 0 ? children[0] : children[children.length - 1];
    depth--;
  }
  return at;
}

export function listenToKeys(app) {
  const { tree, layout } = app;
  const walk = {
    ArrowLeft: (node) => (tree.parent[node] < 0 ? node : tree.parent[node]),
    ArrowRight: (node) => {
      if (tree.isLeaf(node)) return node;
      if (layout.collapsed[node]) app.toggle(node);
      return tree.children(node)[0];
    },
    ArrowUp: (node) => neighbour(app, node, -1),
    ArrowDown: (node) => neighbour(app, node, 1),
  };
  const act = {
    "+": () => app.zoomBy(1.5),
    "=": () => app.zoomBy(1.5),
    "-": () => app.zoomBy(1 / 1.5),
    0: () => app.fit(),
    Home: () => app.choose(tree.roots[0], true),
    Enter: () => app.toggle(app.chosen),
    " ": () => app.toggle(app.chosen),
    f: () => app.focusOn(app.chosen),
    Escape: () => {
      app.search.clear();
      app.choose(-1);
    },
  };
  app.canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (walk[event.key]) {
      const from = app.chosen < 0 ? -1 : layout.standIn(app.chosen);
      app.choose(from < 0 ? tree.roots[0] : walk[event.key](from), true);
    } else if (act[event.key]) {
      act[event.key]();
    } else {
      return;
    }
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement && event.target.type !== "radio" && event.target.type !== "range";
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      app.search.input.focus();
      app.search.input.select();
    } else if (event.key === "?") {
      event.preventDefault();
      document.getElementById("help").showModal();
    }
  });
}
