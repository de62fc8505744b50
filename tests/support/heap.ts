/** What the real program keeps, as opposed to what is merely not collected yet. */
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import type { HeapReport } from './heap-probe.ts';
import { until } from './service.ts';
import type { TestService } from './service.ts';
import { built } from './built.ts';

const file = 'heap.json';

/** For the environment of a `TestService` that is asked with `heapOf`. */
export const heapProbe: Readonly<Record<string, string>> = {
  NODE_OPTIONS: `--import=${pathToFileURL(built('tests/support/heap-probe.ts')).href}`,
  TOKENHOUSE_HEAP_PROBE: file,
};

/** After a full collection. */
export async function heapOf(service: TestService): Promise<HeapReport> {
  const path = join(service.folder, file);
  rmSync(path, { force: true });
  process.kill(service.pid, 'SIGUSR2');
  await until(() => existsSync(path), 30_000);
  return JSON.parse(readFileSync(path, 'utf8')) as HeapReport;
}
