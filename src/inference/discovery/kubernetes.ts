import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { Client } from 'undici';
import type { KubernetesDiscovery } from '../../config/config.ts';
import { combineSignals } from '../../platform/combine-signals.ts';
import { hostName } from '../../platform/outbound/server-url.ts';
import { objectOf, readSlice, serversOf, type EndpointSlice } from './endpoint-slices.ts';
import { problemOf, RetryPause, SourceError, type RunningSource, type SourceReader } from './source.ts';

/** Slices per page of a list, slices in total, and bytes per page. */
const pageSlices = 500;
const slicesMax = 1_000;
const pageBytesMax = 32 * 1024 * 1024;
/** Maximum size of one watch event; a slice with 1,000 endpoints has about 300 KB. */
const eventBytesMax = 8 * 1024 * 1024;
const listTimeoutMs = 15_000;
/** The server ends a watch after this time, and the next one continues where it stopped; jitter keeps replicas apart. */
const watchSecondsMin = 240;
const watchSecondsJitter = 60;
/** Added to that time for servers that do not end the watch. */
const watchGraceMs = 30_000;

/** A watch that was open for this long has worked, whether or not it brought any events. */
const watchProvenMs = 10_000;

/** The version is too old to watch from: the list has to be read again (410 Gone). */
class Expired extends Error {
  override readonly name = 'Expired';
}

/**
 * Lists the EndpointSlices of a service and watches them from there, as client-go's reflector does: a watch that ends continues from the
 * last version seen (bookmarks keep that recent), and starts over with a list if that version is gone. The token is read for each
 * connection, because Kubernetes renews it.
 */
export function openKubernetes(url: string, settings: KubernetesDiscovery, reader: SourceReader): RunningSource {
  const closing = new AbortController();
  void new SliceReflector(url, settings, reader, closing.signal).run();
  return { close: () => closing.abort(new Error('the source is closed')) };
}

class SliceReflector {
  readonly #url: string;
  readonly #settings: KubernetesDiscovery;
  readonly #reader: SourceReader;
  readonly #signal: AbortSignal;
  readonly #slices = new Map<string, EndpointSlice>();
  readonly #pause = new RetryPause();
  /** The version of the slices; `undefined`: they have to be listed. */
  #version: string | undefined;
  #hasFailed = false;

  constructor(url: string, settings: KubernetesDiscovery, reader: SourceReader, signal: AbortSignal) {
    this.#url = url;
    this.#settings = settings;
    this.#reader = reader;
    this.#signal = signal;
  }

  async run(): Promise<void> {
    while (!this.#signal.aborted) {
      try {
        const api = await apiOf(this.#settings);
        try {
          if (this.#version === undefined) {
            await this.#list(api);
            this.#report();
          }
          await this.#watch(api);
        } finally {
          await api.client.destroy();
        }
      } catch (error) {
        if (this.#signal.aborted) return;
        if (error instanceof Expired) this.#version = undefined;
        else this.#fail(problemOf(error, 'the Kubernetes API cannot be asked'));
        await this.#wait(this.#pause.failed());
      }
    }
  }

  async #list({ client, slicesPath, headers }: Api): Promise<void> {
    const slices = new Map<string, EndpointSlice>();
    let next: string | undefined;
    let version: unknown;
    do {
      const query = new URLSearchParams({
        labelSelector: `kubernetes.io/service-name=${this.#settings.service}`,
        limit: String(pageSlices),
        ...(next === undefined ? {} : { continue: next }),
      });
      const signal = combineSignals([this.#signal, AbortSignal.timeout(listTimeoutMs)]);
      const answer = await client.request({ method: 'GET', path: `${slicesPath}?${query}`, headers, signal });
      refuse(answer.statusCode);
      const page = objectOf(parsed(await textOf(answer.body, pageBytesMax)));
      if (!Array.isArray(page['items']))
        throw new SourceError('the Kubernetes API answers with something else than a list');
      for (const item of page['items'] as unknown[]) {
        const slice = readSlice(item);
        if (slice !== undefined) slices.set(slice.name, slice);
      }
      if (slices.size > slicesMax) throw new SourceError(`the service has more than ${slicesMax} EndpointSlices`);
      const metadata = objectOf(page['metadata']);
      version = metadata['resourceVersion'];
      next = typeof metadata['continue'] === 'string' && metadata['continue'] !== '' ? metadata['continue'] : undefined;
    } while (next !== undefined);
    if (typeof version !== 'string') throw new SourceError('the list of the Kubernetes API has no resourceVersion');
    this.#slices.clear();
    for (const [name, slice] of slices) this.#slices.set(name, slice);
    this.#version = version;
  }

  async #watch({ client, slicesPath, headers }: Api): Promise<void> {
    const seconds = Math.round(watchSecondsMin + watchSecondsJitter * Math.random());
    const query = new URLSearchParams({
      labelSelector: `kubernetes.io/service-name=${this.#settings.service}`,
      watch: 'true',
      allowWatchBookmarks: 'true',
      resourceVersion: this.#version!,
      timeoutSeconds: String(seconds),
    });
    const signal = combineSignals([this.#signal, AbortSignal.timeout(seconds * 1_000 + watchGraceMs)]);
    const answer = await client.request({ method: 'GET', path: `${slicesPath}?${query}`, headers, signal });
    refuse(answer.statusCode);
    if (this.#hasFailed) this.#report();
    const startMs = performance.now();
    for await (const line of linesOf(answer.body as AsyncIterable<Uint8Array>)) {
      if (this.#take(objectOf(parsed(line)))) this.#report();
      this.#pause.succeeded();
    }
    // A watch that ends immediately and without events must not be repeated without a pause.
    if (performance.now() - startMs > watchProvenMs) this.#pause.succeeded();
    await this.#wait(this.#pause.failed());
  }

  /** Applies an event and returns whether it changed the slices. Throws `Expired`. */
  #take(event: Readonly<Record<string, unknown>>): boolean {
    const object = objectOf(event['object']);
    if (event['type'] === 'ERROR') {
      if (object['code'] === 410) throw new Expired();
      throw new SourceError(`the Kubernetes API ended the watch with code ${String(Number(object['code']))}`);
    }
    const version = objectOf(object['metadata'])['resourceVersion'];
    if (typeof version === 'string' && version.length <= 1_000) this.#version = version;
    if (event['type'] === 'BOOKMARK') return false;
    const slice = readSlice(object);
    if (slice === undefined) return false;
    if (event['type'] === 'DELETED') return this.#slices.delete(slice.name);
    if (event['type'] !== 'ADDED' && event['type'] !== 'MODIFIED') return false;
    this.#slices.set(slice.name, slice);
    if (this.#slices.size > slicesMax) throw new SourceError(`the service has more than ${slicesMax} EndpointSlices`);
    return true;
  }

  #report(): void {
    try {
      this.#reader.listed(serversOf(this.#slices.values(), this.#url, this.#settings.portName));
      this.#hasFailed = false;
    } catch (error) {
      if (!(error instanceof SourceError)) throw error;
      this.#fail(error.message);
    }
  }

  #fail(problem: string): void {
    this.#hasFailed = true;
    this.#reader.failed(problem);
  }

  #wait(pauseMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, pauseMs).unref();
      this.#signal.addEventListener('abort', done, { once: true });
    });
  }
}

interface Api {
  readonly client: Client;
  readonly slicesPath: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Opens a connection to the API with the pod's current credentials. */
async function apiOf({ apiUrl, credentialsDirectory, namespace }: KubernetesDiscovery): Promise<Api> {
  const credential = async (name: string): Promise<string> =>
    (await readFile(path.join(credentialsDirectory, name), 'utf8')).trim();
  if (apiUrl === undefined)
    throw new SourceError(
      'this process does not run in a Kubernetes cluster (KUBERNETES_SERVICE_HOST is not set); write discover.api_url',
    );
  const url = new URL(apiUrl);
  const isTls = url.protocol === 'https:';
  const [token, ca, own] = await Promise.all([
    credential('token'),
    isTls ? credential('ca.crt') : undefined,
    namespace ?? credential('namespace'),
  ]);
  if (!/^[!-~]{1,65536}$/.test(token)) throw new SourceError('the token of the pod is not a token');
  if (hostName(own) === undefined) throw new SourceError('the namespace of the pod is not a name');
  const client = new Client(url.origin, {
    connect: { timeout: 5_000, ...(ca === undefined ? {} : { ca }) },
    pipelining: 1,
    maxHeaderSize: 16_384,
    headersTimeout: listTimeoutMs,
    // A watch is silent while nothing changes; it has its own time limit.
    bodyTimeout: 0,
  });
  return {
    client,
    slicesPath: `${url.pathname.replace(/\/+$/, '')}/apis/discovery.k8s.io/v1/namespaces/${own}/endpointslices`,
    headers: { accept: 'application/json', 'accept-encoding': 'identity', authorization: `Bearer ${token}` },
  };
}

function refuse(status: number): void {
  if (status === 200) return;
  if (status === 410) throw new Expired();
  if (status === 401) throw new SourceError('the Kubernetes API does not accept the token of the pod (401)');
  if (status === 403)
    throw new SourceError(
      'the service account may not list and watch endpointslices (403); give it a Role with get, list and watch on them',
    );
  throw new SourceError(`the Kubernetes API answers with status ${status}`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new SourceError('the Kubernetes API answers with something else than JSON');
  }
}

async function textOf(body: AsyncIterable<Uint8Array>, bytesMax: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > bytesMax) throw new SourceError('the answer of the Kubernetes API is too long');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

/** Splits the body into events, one per line; chunks may end anywhere. */
async function* linesOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  let pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    let from = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, from)) {
      pieces.push(chunk.subarray(from, end));
      const line = Buffer.concat(pieces).toString();
      if (line.trim() !== '') yield line;
      pieces = [];
      bytes = 0;
      from = end + 1;
    }
    bytes += chunk.length - from;
    if (bytes > eventBytesMax) throw new SourceError('an event of the Kubernetes API is too long');
    pieces.push(chunk.subarray(from));
  }
}
