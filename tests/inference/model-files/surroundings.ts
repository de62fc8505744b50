import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after } from 'node:test';
import { Secret } from '../../../src/config/secret.ts';
import type { FetchEnvironment } from '../../../src/inference/model-files/fetch-model-file.ts';
import type { FetchLimits } from '../../../src/inference/model-files/download-limits.ts';
import { parseSource, type ModelFileSource } from '../../../src/config/model-source.ts';
import { sha256Of } from '../../support/folder.ts';

/** Bytes like those of a model file, different each time. */
export function someBytes(length: number): { readonly body: Buffer; readonly sha256: string } {
  const body = Buffer.concat([Buffer.from('GGUF'), randomBytes(length - 4)]);
  return { body, sha256: sha256Of(body) };
}

/** An empty folder that goes away after the tests of the file. */
export function emptyFolder(): string {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'tokenhouse-model-files-'));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export function sourceOf(text: string): ModelFileSource {
  const source = parseSource(text, '/');
  if ('problem' in source) throw new Error(source.problem);
  return source;
}

/** Nothing of the outside can be reached: the proxy for https is a closed port, and there are no Python tools. */
export function closedEnvironment(
  changes: {
    endpoint?: string;
    token?: string;
    indexUrl?: string;
    configurationFiles?: string[];
    childVariables?: Record<string, string>;
  } = {},
): FetchEnvironment {
  return {
    hub: { endpoint: changes.endpoint, token: changes.token === undefined ? undefined : new Secret(changes.token) },
    packages: { indexUrl: changes.indexUrl, configurationFiles: changes.configurationFiles ?? [] },
    proxy: { http: undefined, https: 'http://127.0.0.1:9', except: '127.0.0.1' },
    childVariables: changes.childVariables ?? { PATH: '/nowhere' },
  };
}

/** Short, so that faults are found soon; none of them is how a test waits. */
export const quick: Partial<FetchLimits> = { pauseMs: 1, pauseMaxMs: 5, idleTimeoutMs: 300, totalTimeoutMs: 30_000 };
