import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { inspect } from 'node:util';

import { MemoryCgroup } from '../../support/memory-cgroup.ts';
import { TestService } from '../../support/service.ts';
import { chatChunk, usageChunk } from '../../support/upstream.ts';
import { send } from './memory-attacks.ts';
import type { Attack } from './memory-attacks.ts';

/** What became of an attack. */
export interface Withstood {
  /** How the service has ended; undefined: it lives. */
  readonly ended: string | undefined;
  readonly bodyBytes: number;
  readonly peakBytes: number;
  /** How many of the attacker's requests got which status; 0: none. */
  readonly statuses: Readonly<Record<number, number>>;
  /** Small requests of another account meanwhile: how many, those that were not answered, and the longest wait. */
  readonly asked: number;
  /** How often they were asked a second later. */
  readonly askedAgain: number;
  readonly unanswered: readonly string[];
  readonly slowestMs: number;
}

export interface SceneOptions {
  readonly bytesMax: number;
  readonly hasCredit: boolean;
  readonly limits?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

/** A service in little memory, with an attacker's key and that of another account, in front of a backend of all kinds of models. */
export class MemoryScene {
  readonly service: TestService;
  readonly cgroup: MemoryCgroup;
  readonly #upstream: Awaited<ReturnType<typeof startUpstream>>;
  attackerKey = '';
  #askedAgain = 0;
  /** Bodies of so many bytes and more are refused whatever else there is. */
  bodyBytesMax = 0;
  otherKey = '';

  private constructor(service: TestService, cgroup: MemoryCgroup, upstream: Awaited<ReturnType<typeof startUpstream>>) {
    this.service = service;
    this.cgroup = cgroup;
    this.#upstream = upstream;
  }

  static async start({ bytesMax, hasCredit, limits, environment }: SceneOptions): Promise<MemoryScene> {
    const cgroup = new MemoryCgroup(`${bytesMax / 1_048_576}m`, bytesMax);
    const upstream = await startUpstream();
    const service = new TestService({
      config: configOf(upstream.url),
      firstCreditCents: '500',
      within: cgroup.within,
      ...(limits === undefined ? {} : { limits }),
      ...(environment === undefined ? {} : { environment }),
    });
    const scene = new MemoryScene(service, cgroup, upstream);
    await service.start();
    scene.otherKey = service.key;
    const args = hasCredit ? ['--credit', '$1000'] : [];
    const made = await service.command('accounts', 'create', 'attacker', ...args, '--json');
    const { id } = JSON.parse(made.stdout) as { id: string };
    const key = await service.command('keys', 'create', '--account', id, '--user', 'mallory', '--json');
    scene.attackerKey = (JSON.parse(key.stdout) as { key: string }).key;
    const head = { name: '', path: '/v1/chat/completions', count: 1, bytes: 0, body: () => Buffer.alloc(0) };
    const { text } = await send(service.url, head, Buffer.alloc(52_428_800), scene.otherKey);
    scene.bodyBytesMax = Number(/fewer than (\d+) bytes/.exec(text)?.[1]);
    return scene;
  }

  /** Sends an attack while another account asks small things, one after the other. */
  async withstand(attack: Attack, options: { readonly chunked?: boolean } = {}): Promise<Withstood> {
    const { service } = this;
    const body = attack.body(
      attack.path === '/v1/files' ? attack.bytes : Math.min(attack.bytes, this.bodyBytesMax - 1),
    );
    let isOver = false;
    this.#askedAgain = 0;
    let asked = 0;
    let slowestMs = 0;
    const unanswered: string[] = [];
    const others = (async () => {
      do {
        const begunMs = performance.now();
        asked++;
        const status = await this.#askSmall();
        if (status !== '200') unanswered.push(status);
        slowestMs = Math.max(slowestMs, performance.now() - begunMs);
        await new Promise((resolve) => setTimeout(resolve, 50));
      } while (!isOver && !service.hasEnded);
    })();
    const answers = await Promise.all(
      Array.from({ length: attack.count }, () => send(service.url, attack, body, this.attackerKey, options)),
    );
    isOver = true;
    await others;
    const statuses: Record<number, number> = {};
    for (const { status } of answers) statuses[status] = (statuses[status] ?? 0) + 1;
    const end = service.hasEnded ? await service.exited() : undefined;
    return {
      ended: end === undefined ? undefined : String(end.signal ?? end.code),
      bodyBytes: body.length,
      peakBytes: this.cgroup.peakBytes,
      statuses,
      asked,
      askedAgain: this.#askedAgain,
      unanswered,
      slowestMs,
    };
  }

  /**
   * As clients do: again after a second where it is refused for the moment, where a busy machine let the ledger be silent, or where a kept
   * connection was closed as the request was sent. That the process lives is looked at apart.
   */
  async #askSmall(): Promise<string> {
    for (let tries = 1; ; tries++) {
      const status = await this.service
        .chat(small, { key: this.otherKey, signal: AbortSignal.timeout(60_000) })
        .then(async (answer) => (await answer.text(), String(answer.status)))
        .catch((error: unknown) => inspect(error, { breakLength: Infinity }));
      const isPassing = status === '500' || status === '429' || status.includes('UND_ERR_SOCKET');
      if (!isPassing || tries === 5) return status;
      this.#askedAgain++;
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
  }

  async end(): Promise<void> {
    await this.service.dispose();
    this.#upstream.close();
    this.cgroup.remove();
  }
}

const small = { model: 'demo', messages: [{ role: 'user', content: 'hi' }] };

const configOf = (url: string): string => {
  const backends = `[ { engine: openai, flavor: vllm, url: "${url}" } ]`;
  const model = (id: string, capabilities: string, own = backends): string => `  - id: ${id}
    context_length: 131072
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    capabilities: ${capabilities}
    backends: ${own}
`;
  return `models:
${model('demo', '{}', '[ { engine: scripted, scripts: [ { say: [ { text: "hello" } ] } ] } ]')}${model('seeing', '{ vision: true }')}${model('vectors', '{ embeddings: { supported: true } }')}${model('ranks', '{ rerank: { supported: true } }')}`;
};

/** Of 1,024 numbers, for each input. */
function vectorsFor(body: Buffer): readonly object[] {
  const { input } = JSON.parse(body.toString()) as { input: string | readonly string[] };
  const embedding = Buffer.from(Float32Array.from({ length: 1_024 }, (_, index) => Math.sqrt(index)).buffer).toString(
    'base64',
  );
  return Array.from({ length: typeof input === 'string' ? 1 : input.length }, (_, index) => ({ index, embedding }));
}

/** Reads everything, slowly, and answers. */
function startUpstream(): Promise<{ readonly url: string; close(): void }> {
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => {
      if (request.url?.endsWith('/embeddings') === true) pieces.push(piece);
      request.pause();
      setTimeout(() => request.resume(), 5);
    });
    request.on('end', () => {
      const path = request.url ?? '';
      const json = (value: unknown): void =>
        void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
      if (path.endsWith('/embeddings'))
        return json({ data: vectorsFor(Buffer.concat(pieces)), usage: { prompt_tokens: 3 } });
      if (path.endsWith('/rerank'))
        return json({ results: [{ index: 0, relevance_score: 0.5 }], usage: { total_tokens: 5 } });
      if (!path.endsWith('/completions')) return void response.writeHead(404).end('{}');
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(
        chatChunk({ role: 'assistant', content: 'Seen.' }, null) +
          chatChunk({}, 'stop') +
          usageChunk({ prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 }) +
          'data: [DONE]\n\n',
      );
    });
    request.on('error', () => {});
  });
  return new Promise((resolve) =>
    server.listen(0, '127.0.0.1', () =>
      resolve({
        url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
        close: () => {
          server.closeAllConnections();
          server.close();
        },
      }),
    ),
  );
}
