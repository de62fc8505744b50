import type { Pool } from 'undici';
import { combineSignals } from '../../../platform/combine-signals.ts';
import type { ServerReport } from '../../../generation/server-report.ts';
import type { Flavor } from './flavors/flavor.ts';
import { adapterPage, adaptersAmong, hasAdapter, type ListedAdapter, type WantedAdapter } from './listed-adapters.ts';
import { listedModels, parsed } from './listing.ts';
import { probeUserAgent } from './probe.ts';
import type { FlavorName } from '../../../generation/flavor-names.ts';

/** Where the pages of a server are, and how they are asked for. */
export interface PageAddress {
  readonly pool: Pool;
  /** Up to and including the API's version: the list of models is below it. */
  readonly basePath: string;
  readonly headers: readonly string[];
  /** Aborted when the engine is closed. */
  readonly signal: AbortSignal;
}

export interface PagesBackend extends PageAddress {
  readonly flavor: Flavor;
  /** The base path without the API's version: reports are next to it. */
  readonly rootPath: string;
}

/** Time limit for probing a backend that refused connections. */
const lookTimeoutMs = 3_000;

/** Time limit for loading an adapter: some hundred megabytes from a disk that is not fast. */
const changeTimeoutMs = 60_000;

/** Maximum size of a status page: vLLM's metrics are about 100 kB for each of its engines. */
const pageBytesMax = 4 * 1024 * 1024;

/** Returns what the server reports about its load; `undefined` if it has no such page, or does not answer. */
export async function askReport(backend: PagesBackend): Promise<ServerReport | undefined> {
  const signal = combineSignals([backend.signal, AbortSignal.timeout(lookTimeoutMs)]);
  for (const { path, read } of backend.flavor.reports) {
    const text = await askPage(backend.rootPath + path, backend, signal).catch(() => undefined);
    const report = text === undefined ? undefined : read(text);
    if (report !== undefined) return report;
  }
  return undefined;
}

/** Returns the ids of the models that the server lists; `undefined` if it does not answer. */
export async function askModels(backend: PagesBackend): Promise<readonly string[] | undefined> {
  const signal = combineSignals([backend.signal, AbortSignal.timeout(lookTimeoutMs)]);
  const text = await askPage(`${backend.basePath}/models`, backend, signal).catch(() => undefined);
  return text === undefined ? undefined : listedModels(text);
}

/** Returns whether the server has the adapter; `unsaid`: it does not list any; `undefined`: it does not answer. Never rejects. */
export async function askAdapter(
  backend: PagesBackend,
  flavor: FlavorName,
  adapter: WantedAdapter,
): Promise<boolean | 'unsaid' | undefined> {
  const signal = combineSignals([backend.signal, AbortSignal.timeout(lookTimeoutMs)]);
  const page = adapterPage[flavor];
  const path = page === '/models' ? `${backend.basePath}${page}` : `${backend.rootPath}${page}`;
  try {
    const text = await askPage(path, backend, signal);
    return text === undefined ? 'unsaid' : (hasAdapter(flavor, adapter, parsed(text)) ?? 'unsaid');
  } catch {
    return undefined;
  }
}

/** Returns the adapters that the server lists among its models; `undefined` if it does not answer. */
export async function askAdapters(backend: PageAddress): Promise<readonly ListedAdapter[] | undefined> {
  const signal = combineSignals([backend.signal, AbortSignal.timeout(lookTimeoutMs)]);
  const text = await askPage(`${backend.basePath}/models`, backend, signal).catch(() => undefined);
  return text === undefined ? undefined : adaptersAmong(parsed(text));
}

/** Has the server load or unload an adapter; rejects if it does not answer. */
export async function changeAdapter(
  { pool, basePath, headers, signal }: PageAddress,
  route: string,
  body: object,
): Promise<{ readonly status: number; readonly body: unknown }> {
  const answer = await pool.request({
    method: 'POST',
    path: basePath + route,
    headers: [...headers, 'user-agent', probeUserAgent],
    body: JSON.stringify(body),
    signal: combineSignals([signal, AbortSignal.timeout(changeTimeoutMs)]),
  });
  return { status: answer.statusCode, body: parsed((await textOf(answer.body)) ?? '') };
}

/** Resolves with any answer of the server; rejects if there is none. */
export async function ping({ pool, basePath, headers, signal }: PagesBackend, isIdle: boolean): Promise<void> {
  const { body } = await pool.request({
    method: 'GET',
    path: `${basePath}/models`,
    headers: isIdle ? [...headers, 'user-agent', probeUserAgent] : (headers as string[]),
    signal: combineSignals([signal, AbortSignal.timeout(lookTimeoutMs)]),
  });
  body.on('error', () => {}).destroy();
}

async function askPage(path: string, { pool, headers }: PageAddress, signal: AbortSignal): Promise<string | undefined> {
  const { statusCode, body } = await pool.request({
    method: 'GET',
    path,
    headers: [...headers, 'user-agent', probeUserAgent],
    signal,
  });
  const text = await textOf(body);
  return statusCode === 200 ? text : undefined;
}

/** `undefined`: it is too long. */
async function textOf(body: AsyncIterable<Buffer>): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > pageBytesMax) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
