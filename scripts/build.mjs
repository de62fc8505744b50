// `npm run build [part] [-- options]`: the program, the web console and the documentation, which are all that is served; or one of:
//
//   console    the web console alone, into dist/console
//   docs       the documentation as a site alone, into dist/docs; a link that leads nowhere fails it
//   package    the npm packages, into dist/packages
//   deb        the Debian package of them, into dist/deb
//   sbom       bills of materials (CycloneDX) and a report of the licences, of the lock files, into dist/sbom
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { setUpProgram } from './bundle.mjs';
import { buildConsoleOrSay } from './console.mjs';
import { buildDocsOrSay } from './docs-site.mjs';
import { aboutOf, fail, root } from './setup.mjs';

const parts = {
  console: 'console.mjs',
  docs: 'docs-site.mjs',
  package: 'package.mjs',
  deb: 'package-deb.mjs',
  sbom: 'sbom.mjs',
};
const [part, ...options] = process.argv.slice(2);

if (part === undefined) {
  await setUpProgram();
  await buildConsoleOrSay();
  await buildDocsOrSay();
} else if (Object.hasOwn(parts, part)) {
  const command = [path.join(root, 'scripts', parts[part]), ...options];
  process.exitCode = spawnSync(process.execPath, command, { cwd: root, stdio: 'inherit' }).status ?? 1;
} else {
  fail(aboutOf(import.meta.url));
}
