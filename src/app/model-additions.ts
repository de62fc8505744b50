import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';

import type { AccountServices, ModelAddition } from '../account-api/services.ts';
import { entryUrl } from '../platform/entries.ts';
import { ApiError } from '../platform/errors.ts';

/** The command prints less; a hub's error could be longer. */
const outputCharactersMax = 64_000;

/**
 * Adds models for the console by the command that people type, in a process of its own: it fetches, tries and writes the model, and has the
 * service take it over. What it needs of memory is its own, and it can be stopped.
 */
export class ModelAdditions implements NonNullable<AccountServices['modelAdditions']> {
  readonly #configFile: string;
  readonly #now: () => number;
  #last: ModelAddition | undefined;
  #child: ChildProcess | undefined;

  constructor(configFile: string, now: () => number) {
    this.#configFile = configFile;
    this.#now = now;
  }

  last(): ModelAddition | undefined {
    return this.#last;
  }

  start({ source, id, price, isFree }: Parameters<NonNullable<AccountServices['modelAdditions']>['start']>[0]) {
    if (this.#child !== undefined)
      throw new ApiError('http_409', 'Another model is being added. Wait until that has ended, or stop it.');
    const terms = price === undefined ? (isFree ? ['--free'] : []) : ['--price', price];
    const named = id === undefined ? [] : ['--id', id];
    // `--`: nothing that is typed as a source becomes an option.
    const words = ['models', 'add', '--json', '--config', this.#configFile, ...named, ...terms, '--', source];
    const child = spawn(process.execPath, [fileURLToPath(entryUrl('main')), ...words], {
      stdio: ['ignore', 'pipe', 'pipe'],
      windowsHide: true,
    });
    const addition: ModelAddition = { source, state: 'running', startedAt: this.#now(), progress: null, result: null };
    [this.#child, this.#last] = [child, addition];
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output = (output + text).slice(0, outputCharactersMax);
    });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-outputCharactersMax);
      const progress = said.split('\n').at(-2);
      // One that was stopped may still say something, when another one is there.
      if (progress !== undefined && this.#child === child) this.#last = { ...addition, progress };
    });
    const ended = (state: 'added' | 'failed', problem?: string): void => {
      if (this.#child !== child) return;
      this.#child = undefined;
      this.#last = { ...addition, state, result: resultIn(output, problem) };
    };
    child.on('error', ({ message }) => ended('failed', message));
    child.on('close', (code, signal) =>
      ended(code === 0 ? 'added' : 'failed', code === 0 ? undefined : `It ended by ${signal ?? `code ${code}`}.`),
    );
    return addition;
  }

  /** What was fetched stays, and another try goes on from there. */
  stop(): void {
    this.#child?.kill();
    this.#child = undefined;
    if (this.#last?.state === 'running') this.#last = { ...this.#last, state: 'stopped', progress: null };
  }
}

/** What the command printed; or, where it could not print anything, what is known of its end. */
function resultIn(output: string, problem: string | undefined): ModelAddition['result'] {
  try {
    return JSON.parse(output) as ModelAddition['result'];
  } catch {
    return { error: problem ?? 'The command printed nothing that could be read.' };
  }
}
