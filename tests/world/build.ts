import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { inRepository } from '../support/repository.ts';
import { Scripts } from './machine.ts';

const memory = '/dev/shm';

/** Memory, where there is such a folder: each schedule writes a database. */
export const worldFolder = (): string => mkdtempSync(join(existsSync(memory) ? memory : tmpdir(), 'tokenhouse-world-'));

/** The part of scripts/bundle.mjs that is used here, which has no types. */
interface Bundle {
  buildScripts(options: {
    readonly files: Readonly<Record<string, string>>;
    readonly folder: string;
    readonly plugins?: readonly object[];
  }): Promise<unknown>;
}

const threads = ['ledger-worker', 'query-worker'] as const;

/** What a thread does when it starts is made a function of its file. */
const threadsBegin = {
  name: 'threads-begin',
  setup(build: Build): void {
    build.onLoad({ filter: /[\\/]store[\\/]sqlite[\\/](?:ledger|query)-worker\.ts$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      const end = text.lastIndexOf('\nimport ');
      const bodyAt = text.indexOf('\n', text.indexOf(';', end)) + 1;
      const body = text.slice(bodyAt).replace(/^export /gm, '');
      return { contents: `${text.slice(0, bodyAt)}export function beginThread() {\n${body}\n}`, loader: 'ts' };
    });
  },
};

/** undici's own timers keep a clock in their module, which would outlive a process. */
const plainTimers = {
  name: 'plain-timers',
  setup(build: Build): void {
    build.onLoad({ filter: /[\\/]undici[\\/]lib[\\/]util[\\/]timers\.js$/ }, () => ({
      contents: `const begin = (run, ms, given) => setTimeout(run, ms, given);
        module.exports = { setTimeout: begin, setFastTimeout: begin, clearTimeout, clearFastTimeout: clearTimeout,
          now: () => performance.now(), tick() {}, reset() {} };`,
    }));
  },
};

/** The part of esbuild's that is used here. */
interface Build {
  onLoad(where: { readonly filter: RegExp }, load: (found: { readonly path: string }) => object): void;
}

/** Builds the program and its threads into a folder, and loads them. `plugins` may change what is built. */
export async function buildWorld(
  folder: string,
  { plugins = [], fault = () => false }: { plugins?: readonly object[]; fault?: (name: string) => boolean } = {},
): Promise<Scripts> {
  const { buildScripts } = (await import(pathToFileURL(inRepository('scripts', 'bundle.mjs')).href)) as Bundle;
  const ofThreads = threads.map((name) => [name, `src/store/sqlite/${name}.ts`] as const);
  const files = { program: 'tests/world/program.ts', ...Object.fromEntries(ofThreads) };
  await buildScripts({ files, folder, plugins: [...plugins, threadsBegin, plainTimers] });
  return new Scripts(folder, ['program', ...threads], fault);
}
