import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { Service } from '../../src/app/service.ts';
import { slowness } from './busy.ts';
import { mainFile } from './built.ts';
import type { GenerationReceipt } from '../../src/account-api/generation-object.ts';
import { runCommand } from './command.ts';
import type { CommandResult } from './command.ts';

/** Half a second on a quiet machine. */
const startTimeoutMs = 120_000;

/** A request, as the tests name its figures. */
export interface UsageLine {
  readonly id: string;
  readonly request_id: string;
  readonly model: string;
  readonly fallback_from: string | null;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly completion_tokens: number;
  readonly reasoning_tokens: number;
  readonly counted: boolean;
  readonly cost_microcents: number;
  readonly uncharged_microcents: number;
  readonly hold_microcents: number;
  readonly plan: string | null;
  readonly ending: string;
  readonly finish: string | null;
  readonly error: string | null;
}

export interface TestServiceOptions {
  /** The `models:` part of tokenhouse.yaml, and whatever else stands beside it; ports and storage are added. */
  readonly config: string;
  /** Lines under `server: limits:`, two spaces deep, for example `  prime_timeout_seconds: 1`. */
  readonly limits?: string;
  /** Processes that answer requests, which need a `database`; 1 when left out. */
  readonly workers?: number;
  /** Address of the PostgreSQL that it works on; SQLite in its folder when left out. */
  readonly database?: string;
  /** Whether the web console is on. Off when left out: it may have been built here or not. */
  readonly console?: boolean;
  /** Cents of the first account. */
  readonly firstCreditCents?: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** Another program than the real one, which starts the real one and has something beside it: a file of `tests/`. */
  readonly entry?: string;
  /** A command that ends by becoming the one after it, such as `nice`. */
  readonly within?: readonly string[];
}

/** A machine that runs many tests at once is slow; that alone must not make a service refuse work. */
const withoutShedding = ['  shed_large_bodies_lag_seconds: 60', '  shed_new_work_lag_seconds: 60'];

/** The suite `cold-keys` has nearly every key read from the database when it is presented. */
const keysInMemory = process.env['TOKENHOUSE_TEST_KEYS_IN_MEMORY'];
const fewKeys = keysInMemory === undefined ? [] : [`  keys_in_memory_max: ${keysInMemory}`];

const linesOf = (text: string): readonly Record<string, unknown>[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Record<string, unknown>);

/** The real program, in a process and a folder of its own, on free ports. */
export class TestService {
  readonly folder: string;
  readonly database: string | undefined;
  readonly #variables: Readonly<Record<string, string>>;
  readonly #environment: NodeJS.ProcessEnv;
  readonly #entry: string;
  readonly #within: readonly string[];
  #process: ChildProcess | undefined;
  #stderr = '';
  #stdout = '';
  /** Base address of the inference host, without `/v1`. */
  url = '';
  accountUrl = '';
  /** The first account's key and id, of the first start. */
  key = '';
  accountId = '';

  constructor(options: TestServiceOptions) {
    this.folder = mkdtempSync(join(tmpdir(), 'tokenhouse-test-'));
    this.database = options.database;
    const database = options.database === undefined ? {} : { TEST_DATABASE: options.database };
    this.#variables = { ...options.environment, ...database };
    this.#environment = { ...process.env, ...this.#variables };
    this.#entry = options.entry ?? mainFile;
    this.#within = options.within ?? [];
    this.configure(options);
  }

  /** Writes the configuration anew; a running service notices by itself. */
  configure(options: Pick<TestServiceOptions, 'config' | 'limits' | 'workers' | 'console' | 'firstCreditCents'>): void {
    const shed = withoutShedding.filter((line) => !options.limits?.includes(line.split(':')[0]!));
    const limits = `  limits:\n${[...shed, ...fewKeys, options.limits ?? ''].join('\n').replace(/^/gm, '  ')}\n`;
    const storage = this.database === undefined ? '' : 'storage: env:TEST_DATABASE\n';
    this.writeConfig(
      `${storage}server:\n  inference: { port: 0 }\n  account: { port: 0, console: ${options.console === true} }\n  workers: ${options.workers ?? 1}\n${limits}accounts: { first_credit_cents: ${options.firstCreditCents ?? '500'} }\n${options.config}\n`,
    );
  }

  /** The whole file, as it stands. */
  writeConfig(text: string): void {
    writeFileSync(join(this.folder, 'tokenhouse.yaml'), text);
  }

  /** From here on with the first account of another, whose database it is given. */
  takesAccountOf({ key, accountId }: TestService): this {
    this.key = key;
    this.accountId = accountId;
    return this;
  }

  get pid(): number {
    return this.#process?.pid ?? 0;
  }

  /** Whether the process of the last start is gone. */
  get hasEnded(): boolean {
    const child = this.#process;
    return child !== undefined && (child.exitCode !== null || child.signalCode !== null);
  }

  /** Everything the service has said and logged so far, over all its starts. */
  get output(): string {
    return this.#stderr + this.#stdout;
  }

  /** The log: one object a line. */
  get log(): readonly Readonly<Record<string, unknown>>[] {
    return linesOf(this.#stdout);
  }

  /** Starts, or starts again on the same data; resolves when it says that it is ready. */
  async start(): Promise<this> {
    const [command = '', ...args] = [...this.#within, process.execPath, this.#entry, 'serve'];
    const child = spawn(command, args, {
      cwd: this.folder,
      env: this.#environment,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#process = child;
    const from = this.#stderr.length;
    child.stdout.on('data', (text: Buffer) => (this.#stdout += text.toString()));
    child.stderr.on('data', (text: Buffer) => (this.#stderr += text.toString()));
    await until(() => {
      const end = child.exitCode ?? child.signalCode;
      if (end !== null) throw new Error(`the service ended with ${end}:\n${this.#stderr}`);
      return /ready in .*\n(.*Console .*\n)?.*API .*\n.*Errors .*\n/.test(this.#stderr.slice(from));
    }, startTimeoutMs);
    const said = this.#stderr.slice(from);
    this.url = /API +(\S+)\/v1/.exec(said)?.[1] ?? '';
    this.accountUrl = /Errors +(\S+)\/docs/.exec(said)?.[1] ?? '';
    if (this.key === '') {
      await until(() => /Then see what it cost/.test(this.#stderr), startTimeoutMs);
      this.key = /tkh_[0-9A-Za-z]+/.exec(this.#stderr)?.[0] ?? '';
      this.accountId = /acct_[0-9A-Za-z]+/.exec(this.#stderr)?.[0] ?? '';
    }
    return this;
  }

  /** Nobody reads the log any more: the pipe fills, then whatever the service has behind it (reliability S11). */
  stallOutput(): void {
    this.#process?.stdout?.pause();
  }

  resumeOutput(): void {
    this.#process?.stdout?.resume();
  }

  /** Runs `tokenhouse …` in the service's folder. */
  command(...args: string[]): Promise<CommandResult> {
    return runCommand(this.folder, args, this.#variables);
  }

  /** The newest requests, newest first. */
  async usage(limit = 1000): Promise<{ readonly requests: readonly UsageLine[]; readonly balanceMicrocents: number }> {
    const { stdout, stderr } = await this.command('usage', '--json', '--limit', String(limit));
    if (stdout === '') throw new Error(stderr);
    const printed = JSON.parse(stdout) as { requests: GenerationReceipt[]; balances: { balance_microcents: number }[] };
    const requests = printed.requests.map((receipt): UsageLine => ({
      ...receipt,
      prompt_tokens: receipt.tokens_prompt,
      cached_tokens: receipt.tokens_cached,
      completion_tokens: receipt.tokens_completion,
      reasoning_tokens: receipt.tokens_reasoning,
      counted: receipt.tokens_counted,
      cost_microcents: receipt.total_cost_microcents,
      finish: receipt.finish_reason,
      error: receipt.error_code,
    }));
    return { requests, balanceMicrocents: printed.balances[0]?.balance_microcents ?? 0 };
  }

  /** Throws unless `tokenhouse ledger verify` finds everything right (invariants I1 to I3). */
  async verify(): Promise<void> {
    const { code, stdout, stderr } = await this.command('ledger', 'verify');
    if (code !== 0) throw new Error(`the ledger is wrong:\n${stdout}${stderr}`);
  }

  /** A chat completion with the first key. */
  chat(
    body: Readonly<Record<string, unknown>>,
    init: { readonly signal?: AbortSignal; readonly key?: string; readonly headers?: Record<string, string> } = {},
  ): Promise<Response> {
    return fetch(`${this.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${init.key ?? this.key}`, 'content-type': 'application/json', ...init.headers },
      body: JSON.stringify(body),
      ...(init.signal === undefined ? {} : { signal: init.signal }),
    });
  }

  /** Resolves with how the process has ended that runs now, or ended last. */
  exited(): Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) {
      return Promise.resolve({ code: child?.exitCode ?? null, signal: child?.signalCode ?? null });
    }
    return new Promise((resolve) => child.once('close', (code, signal) => resolve({ code, signal })));
  }

  /** Sends a signal and resolves with the exit code, null when a signal ended it. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null;
    const ended = new Promise<number | null>((resolve) => child.once('close', (code) => resolve(code)));
    child.kill(signal);
    return await ended;
  }

  /** Ends the service, whatever state it is in, and removes its folder. */
  async dispose(): Promise<void> {
    // A process is closed when everything that it said has been read.
    this.resumeOutput();
    await this.stop('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A model that plays scripts; `scripts` is YAML of the `scripts:` list, two spaces deep at least. */
export const scriptedModel = (
  scripts: string,
  { id = 'demo', contextLength = 8192, maxOutputTokens = 'null', settings = '' } = {},
): string => `models:
  - id: ${id}
    display_name: Demo
    context_length: ${contextLength}
    max_output_tokens: ${maxOutputTokens}
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    sampling: honor
${settings.replace(/^(?=.)/gm, '    ')}${settings === '' ? '' : '\n'}    backends:
      - engine: scripted
        scripts:
${scripts.replace(/^/gm, '          ')}`;

/** Settings of a model that takes text and gives text, streamed or not, and nothing else. */
export const noFeatures = `capabilities:
  tools: false
  chat_completions: { json_object: false, json_schema: false, regex: false, grammar: false, n: false }`;

/**
 * Waits for a condition instead of for time; throws when it does not come. Asks seldomer the longer it takes: what is waited
 * for has the processor, and a wait of a minute stays below the rates of the account host. The time is of a quiet machine.
 */
export async function until(condition: () => boolean | Promise<boolean>, quietMs = 10_000): Promise<void> {
  const timeoutMs = quietMs * slowness;
  const begun = performance.now();
  while (!(await condition())) {
    const waitedMs = performance.now() - begun;
    if (waitedMs > timeoutMs) throw new Error(`not so within ${timeoutMs} ms: ${condition.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, Math.max(5, Math.min(150, waitedMs / 20))));
  }
}

/**
 * The whole service inside the tests' process, for tests of what it answers: a process of its own takes three times as long to
 * start. What a process can lose, be told or be denied (signals, kills, memory, its output) is tested with `TestService`.
 */
export class InnerService extends TestService {
  #service: Service | undefined;
  #lines = '';

  override get log(): readonly Readonly<Record<string, unknown>>[] {
    return linesOf(this.#lines);
  }

  override get output(): string {
    return this.#lines;
  }

  override async start(): Promise<this> {
    // Imported here, because a test that starts a process needs none of it.
    const [{ readContext }, { loadConfig }, { scriptSchema }, { startService }, { createLog }, { version }] =
      await Promise.all([
        import('../../src/cli/read-context.ts'),
        import('../../src/config/load.ts'),
        import('../../src/inference/engines/scripted/script-schema.ts'),
        import('../../src/app/start.ts'),
        import('../../src/platform/log.ts'),
        import('../../src/cli/version.ts'),
      ]);
    const directory = this.folder;
    const { config, environment } = readContext(undefined, directory);
    const service = await startService({
      config,
      environment,
      version,
      log: createLog({ write: (lines) => ((this.#lines += lines), true), once: () => {} }),
      readConfig: (running, text) =>
        loadConfig({ environment, path: undefined, directory, scriptSchema, running, text }),
      workerEntry: new URL('file:///none'),
      configFile: join(directory, 'tokenhouse.yaml'),
      onFatal: (error) => {
        throw error;
      },
      onDownload: () => {},
    });
    this.#service = service;
    await Promise.all(service.backends.map(({ ready }) => ready.catch(() => {})));
    this.url = service.inferenceUrl;
    this.accountUrl = service.accountUrl;
    if (service.firstAccount !== undefined) {
      this.key = service.firstAccount.key;
      this.accountId = service.firstAccount.accountId;
    }
    return this;
  }

  /** As SIGTERM does. */
  override async stop(): Promise<number> {
    await this.#service?.stop();
    this.#service = undefined;
    return 0;
  }

  override async dispose(): Promise<void> {
    this.#service?.cut();
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
