import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { freePort } from '../../support/free-port.ts';
import { until } from '../../support/service.ts';

/** Of each model that it loads. */
export const contextLength = 2048;

const patienceMs = 120_000;

/** A real Ollama with one model, in a home folder of its own. */
export class OllamaServer {
  readonly #child: ChildProcess;
  readonly #port: number;
  readonly #home: string;
  #output = '';

  private constructor(port: number) {
    const program = process.env['OLLAMA'] ?? assert.fail('OLLAMA names the program');
    this.#port = port;
    this.#home = mkdtempSync(join(tmpdir(), 'tokenhouse-ollama-'));
    this.#child = spawn(program, ['serve'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        HOME: this.#home,
        OLLAMA_HOST: `127.0.0.1:${port}`,
        OLLAMA_MODELS: join(this.#home, 'models'),
        OLLAMA_CONTEXT_LENGTH: String(contextLength),
        OLLAMA_NUM_PARALLEL: '1',
        OLLAMA_KEEP_ALIVE: '-1',
      },
    });
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.on('data', (bytes: Buffer) => (this.#output = (this.#output + bytes.toString()).slice(-65_536)));
  }

  /** With a model of that name, made of a GGUF file and loaded. */
  static async start(name: string, modelFile: string): Promise<OllamaServer> {
    const server = new OllamaServer(await freePort());
    try {
      await until(() => server.#answers(), patienceMs);
      await server.#create(name, modelFile);
      await server.post('/api/generate', { model: name, keep_alive: -1 });
    } catch (error) {
      await server.stop();
      throw new Error(`Ollama did not start:\n${server.#output.slice(-4_000)}`, { cause: error });
    }
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  get output(): string {
    return this.#output;
  }

  async #answers(): Promise<boolean> {
    if (this.#child.exitCode !== null) throw new Error('it has ended');
    try {
      const answer = await fetch(`${this.url}/api/version`);
      await answer.arrayBuffer();
      return answer.status === 200;
    } catch {
      return false;
    }
  }

  async #create(model: string, modelFile: string): Promise<void> {
    const bytes = readFileSync(modelFile);
    const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
    const sent = await fetch(`${this.url}/api/blobs/${digest}`, { method: 'POST', body: bytes });
    assert.equal(sent.status, 201, await sent.text());
    await this.post('/api/create', { model, files: { 'model.gguf': digest }, stream: false });
  }

  /** Its own answer, past the service. */
  async post<Answer>(path: string, body: object): Promise<Answer> {
    const answer = await fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ stream: false, ...body }),
    });
    const text = await answer.text();
    assert.equal(answer.status, 200, `${path}: ${text}`);
    return JSON.parse(text) as Answer;
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#child.once('close', resolve));
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      // It ends the process of its model too.
      this.#child.kill('SIGTERM');
      await closed;
    }
    rmSync(this.#home, { recursive: true, force: true });
  }
}
