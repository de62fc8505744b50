import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { Problem } from './problem.ts';

/** bench/masks.py in a process of its own: one question at a time, in lines of JSON. */
export class MaskSide {
  readonly #process;
  readonly #lines: AsyncIterator<string>;

  constructor(python: string) {
    this.#process = spawn(python, ['bench/masks.py'], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]();
  }

  async ask(question: { readonly ask: string } & Readonly<Record<string, unknown>>): Promise<Answer> {
    this.#process.stdin.write(`${JSON.stringify(question)}\n`);
    const line = await this.#lines.next();
    if (line.done === true)
      throw new Problem('bench/masks.py has ended.', 'pip install llguidance jsonschema; give --python');
    return JSON.parse(line.value) as Answer;
  }

  async dispose(): Promise<void> {
    const ended = once(this.#process, 'close');
    this.#process.stdin.end();
    await ended;
  }
}

export interface Answer {
  readonly error?: string;
  readonly masks?: readonly string[];
  readonly takes?: boolean;
  readonly texts?: readonly string[];
  readonly broken?: readonly (readonly string[] | null)[];
  readonly llguidance?: string;
  readonly jsonschema?: string;
}
