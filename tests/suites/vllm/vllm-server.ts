import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import path from 'node:path';

import { freePort } from '../../support/free-port.ts';
import { until } from '../../support/service.ts';

export const contextLength = 2048;
const key = 'test-key';
/** For a service and commands that are started here. */
export const keyVariable = 'VLLM_TEST_KEY';
process.env[keyVariable] = key;

type Model = 'model' | 'model-think';

/** The words that start it, at a low priority: it would have all of the machine. */
export function serveCommand(model: Model, port: string, args: readonly string[] = []): readonly string[] {
  const folder = process.env['VLLM_FOLDER'] ?? assert.fail('VLLM_FOLDER names the folder of scripts/vllm.mjs');
  return [
    ...['nice', '-n', '10', path.join(folder, 'v', 'bin', 'vllm')],
    ...['serve', path.join(folder, model), '--served-model-name', 'smollm2'],
    ...['--host', '127.0.0.1', '--port', port, '--max-model-len', String(contextLength)],
    ...['--max-num-seqs', '16', '--enforce-eager', '--enable-prompt-tokens-details'],
    ...['--enable-auto-tool-choice', '--tool-call-parser', 'hermes', ...args],
  ];
}

/** On one thread, and without the internet. */
export const serveVariables: Readonly<Record<string, string>> = {
  ...{ VLLM_NO_USAGE_STATS: '1', HF_HUB_OFFLINE: '1', VLLM_CPU_KVCACHE_SPACE: '1' },
  ...{ VLLM_CPU_OMP_THREADS_BIND: 'nobind', OMP_NUM_THREADS: '1', VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True' },
};

/** Its first start imports for minutes where other work runs. */
const patienceMs = 15 * 60_000;
const stopMs = 30_000;

const running = new Set<VllmServer>();
// Their groups are their own, so what ends the tests does not reach them.
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    for (const server of running) server.signal('SIGKILL');
    process.kill(process.pid, signal);
  });

export interface DirectAnswer {
  readonly status: number;
  readonly body: unknown;
}

/** A real vLLM with the default model, on one thread. It is of three processes, which end with the first. */
export class VllmServer {
  readonly #child: ChildProcess;
  readonly #port: number;
  #output = '';

  private constructor(port: number, model: Model, args: readonly string[]) {
    this.#port = port;
    const [program = '', ...words] = serveCommand(model, String(port), ['--api-key', key, ...args]);
    this.#child = spawn(program, words, {
      stdio: ['ignore', 'pipe', 'pipe'],
      // A group of its own, so that its engine ends with it.
      detached: true,
      env: { ...process.env, ...serveVariables },
    });
    running.add(this);
    this.#child.once('close', () => running.delete(this));
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.on('data', (bytes: Buffer) => (this.#output = (this.#output + bytes.toString()).slice(-65_536)));
  }

  /** `port`: any free one. */
  static async start(
    model: Model,
    args: readonly string[] = [],
    port: number | undefined = undefined,
  ): Promise<VllmServer> {
    const server = new VllmServer(port ?? (await freePort()), model, args);
    try {
      await server.answers();
    } catch (error) {
      await server.stop();
      throw new Error(`vLLM did not start:\n${server.#output.slice(-4_000)}`, { cause: error });
    }
    return server;
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}/v1`;
  }

  /** As a backend of a model in the configuration. */
  get backend(): string {
    return this.backendNamed('openai');
  }

  backendNamed(name: string): string {
    return `{ engine: openai, name: ${name}, flavor: vllm, url: "${this.url}", model: smollm2, api_key: ${key} }`;
  }

  async #isHealthy(): Promise<boolean> {
    if (this.#child.exitCode !== null) throw new Error('it has ended');
    try {
      const answer = await fetch(`http://127.0.0.1:${this.#port}/health`);
      await answer.arrayBuffer();
      return answer.status === 200;
    } catch {
      return false;
    }
  }

  /** Its own answer, past the service. */
  async post(route: string, body: object): Promise<DirectAnswer> {
    const answer = await fetch(this.url + route, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
      body: JSON.stringify({ model: 'smollm2', ...body }),
    });
    return { status: answer.status, body: await answer.json() };
  }

  /** A page of its own. */
  async get(route: string): Promise<DirectAnswer> {
    const answer = await fetch(this.url + route, { headers: { authorization: `Bearer ${key}` } });
    return { status: answer.status, body: await answer.json() };
  }

  /** A figure of /metrics, over all its labels. */
  async metric(name: string): Promise<number> {
    const answer = await fetch(`http://127.0.0.1:${this.#port}/metrics`);
    const lines = (await answer.text()).split('\n').filter((line) => line.startsWith(`${name}{`));
    assert.ok(lines.length > 0, name);
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  }

  /** To all of its processes. */
  signal(signal: NodeJS.Signals): void {
    process.kill(-this.#child.pid!, signal);
  }

  /** All of its processes at once; resolves when they are gone. */
  async kill(): Promise<void> {
    const closed = new Promise((resolve) => this.#child.once('close', resolve));
    this.signal('SIGKILL');
    await closed;
  }

  /** Resolves when it answers. */
  answers(): Promise<void> {
    return until(() => this.#isHealthy(), patienceMs);
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const closed = new Promise((resolve) => this.#child.once('close', resolve));
    this.#child.kill('SIGTERM');
    // While it starts it does not listen.
    const timer = setTimeout(() => process.kill(-this.#child.pid!, 'SIGKILL'), stopMs);
    await closed;
    clearTimeout(timer);
  }
}
