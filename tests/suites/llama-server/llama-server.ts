import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { readEnvironment } from '../../../src/config/environment.ts';
import { until } from '../../support/service.ts';
import { writeTinyBert, type TinyBertOptions } from '../../support/tiny-bert.ts';
import { writeTinyGguf, writeTinyLora, type TinyGgufOptions } from '../../support/tiny-gguf.ts';
import { inRepository } from '../../support/repository.ts';

export interface LlamaServerOptions {
  readonly modelFile: string;
  readonly slots?: number;
  /** Tokens of one slot. */
  readonly contextLength?: number;
  /** Any free one, known when the model is loaded; a given one can be asked before. */
  readonly port?: number;
  readonly arguments?: readonly string[];
}

/** A slot as `/slots` tells it. */
interface Slot {
  readonly id: number;
  readonly is_processing: boolean;
  readonly next_token?: readonly { readonly n_decoded: number }[];
}

/** A machine with other work may take a minute for what takes a second. */
const patienceMs = 120_000;

/** A real llama-server, on a free port. Nothing is recorded of what it prints but the port. */
export class LlamaServer {
  readonly #child: ChildProcess;
  readonly #port: number;
  #output = '';

  private constructor({ modelFile, slots = 2, contextLength = 2048, port = 0, ...options }: LlamaServerOptions) {
    this.#port = port;
    const args = [
      ...['-m', modelFile, '--host', '127.0.0.1', '--port', String(port), '-np', String(slots)],
      ...['-c', String(slots * contextLength), '--no-kv-unified', '--jinja', '--no-context-shift', '--no-warmup'],
      ...['-t', '1', '-tb', '1', '-ngl', '0', '--no-webui', '--cache-ram', '0'],
      // Weights in the form for AMX end the server with SIGILL where a virtual machine shows AMX and does not let programs use it.
      '--no-repack',
      ...(options.arguments ?? []),
    ];
    this.#child = spawn(llamaServerBinary(), args, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.on('data', (bytes: Buffer) => (this.#output = (this.#output + bytes.toString()).slice(-65_536)));
  }

  /** Resolves when it answers at all; with a given port that is while the model is still being loaded. */
  static async listening(options: LlamaServerOptions): Promise<LlamaServer> {
    const server = new LlamaServer(options);
    try {
      await until(async () => (await server.#health()) !== undefined, patienceMs);
    } catch (error) {
      await server.stop('SIGKILL');
      throw error;
    }
    return server;
  }

  /** Resolves when it answers requests. */
  static async start(options: LlamaServerOptions): Promise<LlamaServer> {
    const server = await LlamaServer.listening(options);
    await server.ready();
    return server;
  }

  ready(): Promise<void> {
    return until(async () => (await this.#health()) === 200, patienceMs);
  }

  get origin(): string {
    if (this.#port !== 0) return `http://127.0.0.1:${this.#port}`;
    return /listening on (http:\/\/[\d.:]+)/.exec(this.#output)?.[1] ?? '';
  }

  async #health(): Promise<number | undefined> {
    const { exitCode, signalCode } = this.#child;
    if (exitCode !== null || signalCode !== null)
      throw new Error(`llama-server ended (${signalCode ?? exitCode}):\n${this.#output}`);
    if (this.origin === '') return undefined;
    try {
      const answer = await fetch(`${this.origin}/health`);
      await answer.arrayBuffer();
      return answer.status;
    } catch {
      return undefined;
    }
  }

  get url(): string {
    return `${this.origin}/v1`;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get output(): string {
    return this.#output;
  }

  /** Slots that are at work. */
  async working(): Promise<number> {
    return (await this.#workingSlots()).length;
  }

  /** Tokens that the slots at work have written. */
  async written(): Promise<number> {
    const slots = await this.#workingSlots();
    return slots.reduce((sum, slot) => sum + (slot.next_token?.[0]?.n_decoded ?? 0), 0);
  }

  async #workingSlots(): Promise<readonly Slot[]> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return [];
    const answer = await fetch(`${this.origin}/slots`);
    assert.equal(answer.status, 200);
    return ((await answer.json()) as Slot[]).filter((slot) => slot.is_processing);
  }

  async post(path: string, body: unknown): Promise<Response> {
    return await fetch(this.origin + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  }

  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const closed = new Promise((resolve) => this.#child.once('close', resolve));
    this.#child.kill(signal);
    await closed;
  }
}

/** Ending a server with SIGTERM lets running answers end first; a test's server has nothing to lose. */
export const stopServer = (server: LlamaServer | undefined): Promise<void> =>
  server?.stop('SIGKILL') ?? Promise.resolve();

/** The file of the default model; fails in words when it is not there. */
export function defaultModelFile(): string {
  const file = join(readEnvironment().modelDirectory, 'SmolLM2-135M-Instruct.Q4_1.gguf');
  assert.equal(
    statSync(file, { throwIfNoEntry: false })?.size,
    98_362_432,
    `${file} is missing or not whole. Get it with \`npx tokenhouse models pull\`.`,
  );
  return file;
}

/** A folder with tiny models, to be removed by `dispose`. */
export class TinyModels {
  readonly #folder = mkdtempSync(join(tmpdir(), 'tokenhouse-llama-server-'));

  write(name: string, options: TinyGgufOptions): string {
    const file = join(this.#folder, `${name}.gguf`);
    writeTinyGguf(file, options);
    return file;
  }

  writeLora(name: string, options: TinyGgufOptions, from: string, to: string): string {
    const file = join(this.#folder, `${name}.gguf`);
    writeTinyLora(file, options, from, to);
    return file;
  }

  writeBert(name: string, options: TinyBertOptions): string {
    const file = join(this.#folder, `${name}.gguf`);
    writeTinyBert(file, options);
    return file;
  }

  dispose(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** The prompt is what the messages say and nothing else, so that a message chooses the chain of a scripted model. */
export const bareTemplate = '{%- for message in messages %}{{- message.content }}{%- endfor %}';

/**
 * A scripted model for `bareTemplate`: `<brief>` is answered in six tokens, `<endless>` goes on until the context is full,
 * and `<silent>` goes on without a visible character.
 */
export const scriptedTiny: TinyGgufOptions = {
  chatTemplate: bareTemplate,
  contextLength: 131_072,
  script: [
    ['<brief>', 'Hello', ' from', ' a', ' real', ' server', '.', '<|im_end|>'],
    ['<endless>', ' on', ' and', ' further', ' on'],
    ['<silent>', '<|im_start|>', '<|im_start|>'],
  ],
};
export const briefText = 'Hello from a real server.';

let found: string | undefined;

/** What `scripts/llama-server.mjs` finds, or builds when this is the first run on the machine. */
export function llamaServerBinary(): string {
  const script = inRepository('scripts/llama-server.mjs');
  found ??= execFileSync(process.execPath, [script], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }).trim();
  return found;
}

/** A model that answers "base", and two adapters with which it answers their names. */
export function baseWithAdapters(models: TinyModels): { readonly modelFile: string; readonly loras: string } {
  const script = [
    ['<ask>', 'base', '<|im_end|>'],
    ['legal', '<|im_end|>'],
    ['sales', '<|im_end|>'],
  ];
  const tiny = { chatTemplate: bareTemplate, contextLength: 8192, script };
  const files = ['legal', 'sales'].map((name) => models.writeLora(name, tiny, '<ask>', name));
  return { modelFile: models.write('base', tiny), loras: files.join(',') };
}
