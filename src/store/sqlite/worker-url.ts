import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The entry file of a thread beside this file, with the ending that is running: `.js` when built, `.ts` under a loader. */
export function workerUrl(name: 'ledger-worker' | 'desk-worker'): URL {
  return new URL(`./${name}${extname(fileURLToPath(import.meta.url))}`, import.meta.url);
}
