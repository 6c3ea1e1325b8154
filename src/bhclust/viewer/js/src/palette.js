// Colours that most colour-blind readers can tell apart.
import { interpolateLab } from "d3-interpolate";
import { scaleLinear } from "d3-scale";

// Okabe and Ito, as in the report; on a dark ground the same hues, lighter.
const CLUSTERS = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7a00", "#000000"],
  dark: ["#4aa3df", "#ff8a3c", "#2cc79a", "#e39ac4", "#f0b93a", "#8fd0f5", "#d6d657", "#ffffff"],
};

// Paul Tol's light scheme, so that a category is not taken for a cluster; grey for all others.
export const CATEGORIES = ["#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00"];
export const OTHER_CATEGORY = "#c4c4c4";

// Cividis, from low to high: its lightness rises evenly, with and without colour vision.
const CIVIDIS = ["#00204c", "#00336f", "#39486b", "#575c6d", "#707173", "#8a8779", "#a69d75", "#c4b56c", "#e4cf5b", "#ffe945"];
const ramp = scaleLinear()
  .domain(CIVIDIS.map((_, i) => i / (CIVIDIS.length - 1)))
  .range(CIVIDIS)
  .interpolate(interpolateLab)
  .clamp(true);

export const rampColour = (share) => ramp(share);

/** Return the colour of each cluster, so that neighbours in the picture differ. */
export function clusterColours(tree, tops, dark) {
  const colours = dark ? CLUSTERS.dark : CLUSTERS.light;
  const order = Array.from(tops.keys()).sort((a, b) => tree.leafFrom[tops[a]] - tree.leafFrom[tops[b]]);
  const out = new Array(tops.length);
  let before = -1;
  for (const label of order) {
    let colour = label % colours.length;
    if (colour === before) colour = (colour + 3) % colours.length;
    out[label] = colours[colour];
    before = colour;
  }
  return out;
}

/** Return "#rrggbb" or "rgb(r, g, b)" as one number in the byte order of image data. */
export function packed(colour) {
  const parts = colour.startsWith("#")
    ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))
    : colour.match(/\d+/g).map(Number);
  return ((255 << 24) | (parts[2] << 16) | (parts[1] << 8) | parts[0]) >>> 0;
}
