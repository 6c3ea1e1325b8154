// Two pens with the same few verbs: one draws on a canvas, the other builds an SVG document.

const FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif";
const SVG = "http://www.w3.org/2000/svg";

export class CanvasPen {
  constructor(context) {
    this.context = context;
  }

  lines(colour, width, points) {
    const c = this.context;
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.beginPath();
    for (let i = 0; i < points.length; i += 4) {
      c.moveTo(points[i], points[i + 1]);
      c.lineTo(points[i + 2], points[i + 3]);
    }
    c.stroke();
  }

  rect(x, y, width, height, fill) {
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
  }

  polygon(points, fill) {
    const c = this.context;
    c.fillStyle = fill;
    c.beginPath();
    for (let i = 0; i < points.length; i += 2) c.lineTo(points[i], points[i + 1]);
    c.closePath();
    c.fill();
  }

  text(string, x, y, { fill, size = 12, weight = 400, anchor = "start", turned = false }) {
    const c = this.context;
    c.font = `${weight} ${size}px ${FONT}`;
    c.fillStyle = fill;
    c.textAlign = anchor === "middle" ? "center" : anchor;
    c.textBaseline = "middle";
    if (!turned) {
      c.fillText(string, x, y);
      return;
    }
    c.save();
    c.translate(x, y);
    c.rotate(-Math.PI / 2);
    c.fillText(string, 0, 0);
    c.restore();
  }

  image(canvas, x, y, width, height) {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(canvas, x, y, width, height);
  }

  clipped(x, y, width, height, draw) {
    const c = this.context;
    c.save();
    c.beginPath();
    c.rect(x, y, width, height);
    c.clip();
    draw();
    c.restore();
  }
}

export class SvgPen {
  constructor(width, height, title) {
    this.root = this.#element("svg", { xmlns: SVG, viewBox: `0 0 ${width} ${height}`, width, height });
    this.root.append(this.#element("title", {}, title));
    this.group = this.root;
    this.clips = 0;
  }

  #element(name, attributes, text) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key !== "xmlns") element.setAttribute(key, typeof value === "number" ? +value.toFixed(2) : value);
    }
    // XML has no way to write control characters.
    if (text !== undefined) element.textContent = text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
    return element;
  }

  #add(name, attributes, text) {
    this.group.append(this.#element(name, attributes, text));
  }

  lines(colour, width, points) {
    let d = "";
    for (let i = 0; i < points.length; i += 4) {
      const [x0, y0, x1, y1] = [0, 1, 2, 3].map((j) => +points[i + j].toFixed(2));
      d += `M${x0} ${y0}L${x1} ${y1}`;
    }
    if (d) this.#add("path", { d, stroke: colour, "stroke-width": width, fill: "none" });
  }

  rect(x, y, width, height, fill) {
    this.#add("rect", { x, y, width, height, fill });
  }

  polygon(points, fill) {
    this.#add("polygon", { points: Array.from(points, (p) => +p.toFixed(2)).join(" "), fill });
  }

  text(string, x, y, { fill, size = 12, weight = 400, anchor = "start", turned = false }) {
    const place = turned ? { transform: `translate(${x.toFixed(2)} ${y.toFixed(2)}) rotate(-90)` } : { x, y };
    const look = { fill, "font-size": size, "font-weight": weight, "text-anchor": anchor, "font-family": FONT };
    this.#add("text", { ...place, ...look, "dominant-baseline": "central" }, string);
  }

  image(canvas, x, y, width, height) {
    const look = { preserveAspectRatio: "none", "image-rendering": "pixelated" };
    this.#add("image", { x, y, width, height, href: canvas.toDataURL("image/png"), ...look });
  }

  clipped(x, y, width, height, draw) {
    const id = `clip-${this.clips++}`;
    const clip = this.#element("clipPath", { id });
    clip.append(this.#element("rect", { x, y, width, height }));
    const outer = this.group;
    outer.append(clip);
    this.group = this.#element("g", { "clip-path": `url(#${id})` });
    outer.append(this.group);
    draw();
    this.group = outer;
  }

  document() {
    return new XMLSerializer().serializeToString(this.root);
  }
}
