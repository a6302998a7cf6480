// Build the page into the package, from where `milepost dashboard run` serves it: node build.mjs
import { build } from "esbuild";
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";

const out = "../src/milepost/dashboard/_built";
const maplibre = "node_modules/maplibre-gl";

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
await build({
  entryPoints: { app: "src/main.ts" },
  outdir: out,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  logLevel: "warning",
});
// Without its sourceMappingURL comment, for which developer tools would request a missing file.
const worker = await readFile(`${maplibre}/dist/maplibre-gl-worker.mjs`, "utf8");
await writeFile(`${out}/worker.js`, worker.replace(/\/\/# sourceMappingURL=.*\s*$/, ""));
await copyFile("static/icon.svg", `${out}/icon.svg`);
await copyFile(`${maplibre}/LICENSE.txt`, `${out}/licences.txt`);
await copyFile("static/index.html", `${out}/index.html`); // last: when it exists, all files do
