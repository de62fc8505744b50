import { readFileSync } from 'node:fs';

/** Of the package: `dist/src/cli/` lies three folders below it. */
export const version = (
  JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')) as { readonly version: string }
).version;
