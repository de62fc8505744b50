// The command `tokenhouse` of the npm package; without arguments it is like `npm start` in a clone. Bundled by scripts/package.mjs.
import { createRequire } from 'node:module';

import { launch } from '../launch.mjs';
import { fail } from '../basics.mjs';
import { platforms } from './platforms.mjs';

const name = `@tokenhouse/${process.platform}-${process.arch}`;
if (!platforms.some((platform) => platform.name === name))
  fail(
    `Tokenhouse has no binaries for ${process.platform} on ${process.arch}: run it in a container or in a virtual machine.`,
  );
try {
  createRequire(import.meta.url).resolve(name);
} catch {
  fail(
    `The package ${name} with the binaries of this computer is missing. Install tokenhouse again with optional packages: npm install --include=optional tokenhouse`,
  );
}
const words = process.argv.slice(2);
await launch(words.length === 0 ? ['serve'] : words);
