export interface RememberedOptions {
  readonly entriesMax: number;
  readonly forMs: number;
}

/** Values by name, kept for a while; when there are too many, the oldest are dropped. */
export class Remembered<Value> {
  readonly #options: RememberedOptions;
  /** The oldest first. */
  readonly #entries = new Map<string, { readonly value: Value; readonly untilMs: number }>();

  constructor(options: RememberedOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(name: string): Value | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined || entry.untilMs > performance.now()) return entry?.value;
    this.#entries.delete(name);
    return undefined;
  }

  set(name: string, value: Value): void {
    const { entriesMax, forMs } = this.#options;
    this.#entries.delete(name);
    this.#entries.set(name, { value, untilMs: performance.now() + forMs });
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= entriesMax) return;
      this.#entries.delete(oldest);
    }
  }
}
