import { inspect } from 'node:util';

/** A value that logs, error texts and JSON never show; code that needs it calls `reveal()`. */
export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  reveal(): string {
    return this.#value;
  }

  toString(): string {
    return '(secret)';
  }

  toJSON(): string {
    return '(secret)';
  }

  [inspect.custom](): string {
    return '(secret)';
  }
}
