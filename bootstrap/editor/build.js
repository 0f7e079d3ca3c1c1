// Build the SQL editor: one script without imports, and the licences of all that is in it.
//
//     npm ci --prefix bootstrap/editor --ignore-scripts
//     npm run build --prefix bootstrap/editor [-- FOLDER]
//
// The same lockfile gives the same bytes; tests/installation/test_editor_build.py compares them.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild-wasm";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "..", "..", "static", "vendor", "codemirror");

const { outputFiles, metafile } = await build({
  absWorkingDir: here,
  entryPoints: ["editor.js"],
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  legalComments: "none",
  banner: { js: "/* Built by bootstrap/editor/build.js from the packages in LICENSE. */" },
  metafile: true,
  write: false,
  outdir: ".",
});
const packages = new Set(
  Object.values(metafile.outputs)
    .flatMap(({ inputs }) => Object.entries(inputs))
    .filter(([path, { bytesInOutput }]) => path.startsWith("node_modules/") && bytesInOutput)
    .map(([path]) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/)[1]),
);
const licences = [...packages].sort().map((name) => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}\n`;
});

mkdirSync(target, { recursive: true });
writeFileSync(join(target, "sql-editor.min.js"), outputFiles[0].contents);
writeFileSync(join(target, "LICENSE"), licences.join(`\n${"-".repeat(72)}\n\n`));
