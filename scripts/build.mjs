// Builds all that is served: the program, the web console and the documentation.
//
//   node scripts/build.mjs
import { setUpProgram } from './bundle.mjs';
import { buildConsoleOrSay } from './console.mjs';
import { buildDocsOrSay } from './docs-site.mjs';

await setUpProgram();
await buildConsoleOrSay();
await buildDocsOrSay();
