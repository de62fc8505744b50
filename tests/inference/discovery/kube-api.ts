import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inRepository } from '../../support/repository.ts';

const pem = (name: string): string => readFileSync(inRepository('tests/fixtures/tls', name), 'utf8');

export interface Endpoint {
  readonly address: string;
  readonly ready?: boolean | null;
  readonly terminating?: boolean;
}

export interface Slice {
  readonly name: string;
  readonly type?: 'IPv4' | 'IPv6' | 'FQDN';
  readonly endpoints: readonly Endpoint[];
  readonly ports?: readonly { readonly name?: string; readonly port: number | null; readonly protocol?: string }[];
}

/**
 * The part of the Kubernetes API that lists and watches EndpointSlices, over HTTPS: pages, versions, chunked watches, bookmarks, 410
 * for versions that are gone, tokens. It is written from the documentation of the API, not recorded from a kube-apiserver.
 */
export class KubeApi {
  readonly #server: Server;
  readonly #folder = mkdtempSync(join(tmpdir(), 'tokenhouse-kube-'));
  readonly #watches = new Set<ServerResponse>();
  #slices = new Map<string, Slice>();
  readonly #events: { readonly version: number; readonly event: unknown }[] = [];
  #version = 100;
  /** Older versions than it are gone. */
  oldestVersion = 0;
  token = 'token-1';
  pageLength = 500;
  /** Status of each answer, in place of the right one. */
  fails: number | undefined;
  readonly requests: { readonly kind: 'list' | 'watch'; readonly url: URL; readonly token: string }[] = [];

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(): Promise<KubeApi> {
    const server = createServer({ cert: pem('cert.pem'), key: pem('key.pem') }, (request, response) =>
      api.#answer(request, response),
    );
    const api = new KubeApi(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    api.writeCredentials();
    return api;
  }

  get url(): string {
    return `https://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get credentials(): string {
    return this.#folder;
  }

  get watching(): number {
    return this.#watches.size;
  }

  count(kind: 'list' | 'watch'): number {
    return this.requests.filter((request) => request.kind === kind).length;
  }

  writeCredentials(ca = pem('ca.pem')): void {
    writeFileSync(join(this.#folder, 'token'), `${this.token}\n`);
    writeFileSync(join(this.#folder, 'ca.crt'), ca);
    writeFileSync(join(this.#folder, 'namespace'), 'models');
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Changes a slice, and tells those who watch. `isSilent`: they miss it. */
  set(slice: Slice, { isSilent = false } = {}): void {
    const type = this.#slices.has(slice.name) ? 'MODIFIED' : 'ADDED';
    this.#slices.set(slice.name, slice);
    this.#version++;
    if (!isSilent) this.#happened({ type, object: this.#objectOf(slice) });
  }

  delete(name: string, { isSilent = false } = {}): void {
    const slice = this.#slices.get(name)!;
    this.#slices.delete(name);
    this.#version++;
    if (!isSilent) this.#happened({ type: 'DELETED', object: this.#objectOf(slice) });
  }

  bookmark(): void {
    this.send({
      type: 'BOOKMARK',
      object: { kind: 'EndpointSlice', metadata: { resourceVersion: `${++this.#version}` } },
    });
  }

  /** A watch that begins at an earlier version gets it too. */
  #happened(event: unknown): void {
    this.#events.push({ version: this.#version, event });
    this.send(event);
  }

  send(event: unknown): void {
    this.write(`${JSON.stringify(event)}\n`);
  }

  /** Bytes to all who watch. */
  write(text: string): void {
    for (const watch of this.#watches) watch.write(text);
  }

  /** As the server ends a watch whose time is over; `isCut`: as a network does. */
  endWatches({ isCut = false } = {}): void {
    for (const watch of this.#watches) {
      if (isCut) watch.destroy();
      else watch.end();
    }
    this.#watches.clear();
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url!, this.url);
    const kind = url.searchParams.get('watch') === 'true' ? 'watch' : 'list';
    const token = (request.headers.authorization ?? '').replace('Bearer ', '');
    this.requests.push({ kind, url, token });
    const status = (code: number): void => {
      response.writeHead(code, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ kind: 'Status', apiVersion: 'v1', status: 'Failure', code, message: 'secret-9' }));
    };
    if (this.fails !== undefined) return status(this.fails);
    if (token !== this.token) return status(401);
    if (url.pathname !== '/apis/discovery.k8s.io/v1/namespaces/models/endpointslices') return status(404);
    if (url.searchParams.get('labelSelector') !== 'kubernetes.io/service-name=vllm') return status(400);
    if (kind === 'list') return this.#list(url, response);
    const from = Number(url.searchParams.get('resourceVersion'));
    if (from < this.oldestVersion) return status(410);
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    this.#watches.add(response);
    for (const { version, event } of this.#events) if (version > from) response.write(`${JSON.stringify(event)}\n`);
    response.on('close', () => this.#watches.delete(response));
  }

  #list(url: URL, response: ServerResponse): void {
    const from = Number(url.searchParams.get('continue') ?? 0);
    const all = [...this.#slices.values()];
    const length = Math.min(this.pageLength, Number(url.searchParams.get('limit')));
    const rest = all.length - from - length;
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(
      JSON.stringify({
        kind: 'EndpointSliceList',
        metadata: {
          resourceVersion: `${this.#version}`,
          ...(rest > 0 ? { continue: `${from + length}`, remainingItemCount: rest } : {}),
        },
        items: all.slice(from, from + length).map((slice) => this.#objectOf(slice)),
      }),
    );
  }

  #objectOf({ name, type = 'IPv4', endpoints, ports = [{ name: 'http', port: 8000 }] }: Slice): object {
    return {
      kind: 'EndpointSlice',
      apiVersion: 'discovery.k8s.io/v1',
      metadata: { name, namespace: 'models', resourceVersion: `${this.#version}` },
      addressType: type,
      endpoints: endpoints.map(({ address, ready = true, terminating }) => ({
        addresses: [address],
        conditions: { ready, serving: ready, ...(terminating === undefined ? {} : { terminating }) },
        targetRef: { kind: 'Pod', name: `vllm-${address}` },
      })),
      ports,
    };
  }
}
