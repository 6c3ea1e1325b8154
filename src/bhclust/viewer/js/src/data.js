// The payload of the page: JSON with base64 arrays, little-endian, turned into typed arrays.

const KINDS = { i4: Int32Array, f4: Float32Array, f8: Float64Array, u1: Uint8Array };

function bytesOf(text) {
  if (typeof Uint8Array.fromBase64 === "function") return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** Return the typed array that `{type, data}` holds, or null for null. */
export function arrayOf(packed) {
  if (packed === null || packed === undefined) return null;
  const bytes = bytesOf(packed.data);
  return new KINDS[packed.type](bytes.buffer, bytes.byteOffset, bytes.byteLength / KINDS[packed.type].BYTES_PER_ELEMENT);
}

/** Spread numbers of the internal nodes over all nodes; leaves get `leafValue`. */
export function overNodes(inner, nLeaves, leafValue) {
  if (inner === null) return null;
  const out = new Float64Array(nLeaves + inner.length).fill(leafValue);
  out.set(inner, nLeaves);
  return out;
}

export function readPayload(element) {
  const page = JSON.parse(element.textContent);
  const n = page.tree.nLeaves;
  const inner = (packed, leafValue) => overNodes(arrayOf(packed), n, leafValue);
  page.tree = {
    nLeaves: n,
    parent: arrayOf(page.tree.parent),
    height: inner(page.tree.height, 0),
    weight: arrayOf(page.tree.weight),
    logMarginal: arrayOf(page.tree.logMarginal),
  };
  page.rule = {
    kind: page.rule.kind,
    probability: inner(page.rule.probability, 1),
    logStop: inner(page.rule.logStop, 0),
    logGo: inner(page.rule.logGo, -Infinity),
    logRatio: inner(page.rule.logRatio, Infinity),
  };
  if (page.heat) page.heat.codes = arrayOf(page.heat.codes);
  if (page.explain) {
    const explain = page.explain;
    const nodes = arrayOf(explain.nodes);
    explain.place = new Map(Array.from(nodes, (node, place) => [node, place]));
    for (const name of ["split", "rest"]) {
      const part = explain[name];
      if (!part) continue;
      for (const key of ["feature", "factor", "total", "values"]) part[key] = arrayOf(part[key]);
    }
  }
  return page;
}
