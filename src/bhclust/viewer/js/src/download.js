// Files for the reader: labels as CSV, the picture as SVG and PNG.
import { CanvasPen, SvgPen } from "./pens.js";

function field(text) {
  return /[",\r\n]|^\s|\s$/.test(text) || text === "" ? `"${text.replaceAll('"', '""')}"` : text;
}

export function labelsAsCsv(names, labels) {
  const lines = ["row,cluster"];
  names.forEach((name, leaf) => lines.push(`${field(name)},${labels[leaf]}`));
  return lines.join("\n") + "\n";
}

export function offer(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export function pictureAsSvg(picture, title) {
  const pen = new SvgPen(picture.width, picture.height, title);
  picture.draw(pen);
  return pen.document();
}

/** Draw the picture anew at twice the size, so that it can be printed. */
export function pictureAsPng(picture) {
  const canvas = document.createElement("canvas");
  canvas.width = picture.width * 2;
  canvas.height = picture.height * 2;
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  picture.draw(new CanvasPen(context));
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
