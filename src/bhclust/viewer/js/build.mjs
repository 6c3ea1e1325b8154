// Bundles the viewer and records what it was made of: `make viewer` in the root of the project.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "bundle");
const sha256 = (path) => createHash("sha256").update(readFileSync(path)).digest("hex");
const packageOf = (path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1];

async function bundle(banner) {
  return esbuild.build({
    absWorkingDir: here,
    entryPoints: ["src/main.js"],
    bundle: true,
    minify: true,
    format: "iife",
    charset: "ascii", // no letter of the script depends on the encoding of the page
    target: ["chrome100", "firefox100", "safari15.4"],
    legalComments: "none",
    metafile: true,
    write: false,
    banner: { js: banner },
  });
}

const inputs = Object.keys((await bundle("")).metafile.inputs);
const packages = [...new Set(inputs.map(packageOf).filter(Boolean))].sort();
const versions = Object.fromEntries(
  packages.map((name) => [name, JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"))).version]),
);
const licences = packages.map((name) => {
  const text = readFileSync(join(here, "node_modules", name, "LICENSE"), "utf8").trim();
  return `${name} ${versions[name]}\n\n${text}\n`;
});
const rule = `\n${"-".repeat(80)}\n\n`;
writeFileSync(join(out, "LICENSES.txt"), "The script viewer.js holds parts of these packages.\n" + rule + licences.join(rule));

// Every page carries the notices, since every page carries the code.
const result = await bundle(`/*! Holds parts of these packages.\n\n${licences.join("\n\n").replaceAll("*/", "* /")}*/`);
writeFileSync(join(out, "viewer.js"), result.outputFiles[0].contents);

const sources = ["build.mjs", "package.json", "package-lock.json", ...readdirSync(join(here, "src")).sort().map((name) => `src/${name}`)];
const record = {
  bundler: `esbuild ${esbuild.version}`,
  packages: versions,
  sources: Object.fromEntries(sources.map((name) => [name, sha256(join(here, name))])),
  bundle: Object.fromEntries(["viewer.js", "LICENSES.txt"].map((name) => [name, sha256(join(out, name))])),
};
writeFileSync(join(out, "build.json"), JSON.stringify(record, null, 2) + "\n");
console.log(`viewer.js: ${result.outputFiles[0].contents.length} bytes`);
