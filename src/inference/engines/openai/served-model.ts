/**
 * Detects whether a server still has the model that it is used for. Some servers answer 200 for any name with the one model that they have,
 * and somebody may have started another there. The model name in an answer proves nothing: it may be an alias, a snapshot's name or the
 * requested name. So it has to differ from the name in this server's earlier answers, and the server's own list, which had the model, must
 * no longer have it (docs/decisions/031-failing-backends.md).
 */
export interface ServedModelOptions {
  /** Asks the server for its models; `undefined`: it does not report them, or not now. Never rejects. */
  readonly list: () => Promise<readonly string[] | undefined>;
  /** The configured name of the model on the server. */
  readonly model: string;
  /** Called when the server has another model from now on, or the configured one again. */
  readonly changed: (isOther: boolean) => void;
  readonly now?: () => number;
  readonly lookEveryMs?: number;
}

/** A longer name is ignored. */
const nameCharactersMax = 512;
/** Limits the checks for a server whose name changes with each answer. */
const doubtEveryMs = 30_000;

export class ServedModel {
  readonly #options: ServedModelOptions;
  readonly #now: () => number;
  /** The model name in its answers. */
  #name: string | undefined;
  /** Whether its list had the model when it first answered; otherwise there is nothing to compare. */
  #wasListed = false;
  #isAsking = false;
  #askAtMs = -Infinity;
  #isOther = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ServedModelOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** Whether it has another model, so that it must not get requests. */
  get isOther(): boolean {
    return this.#isOther;
  }

  /** Takes the model name in a piece of an answer. Costs one comparison as long as it stays the same. */
  heard(name: unknown): void {
    if (name === this.#name || typeof name !== 'string' || name.length > nameCharactersMax) return;
    if (this.#isAsking || this.#isOther || this.#now() < this.#askAtMs) return;
    const isFirst = this.#name === undefined;
    if (!isFirst && !this.#wasListed) return;
    void this.#ask(name, isFirst);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#askAtMs = Infinity;
    this.#isOther = false;
  }

  async #ask(name: string, isFirst: boolean): Promise<void> {
    this.#isAsking = true;
    const models = await this.#options.list();
    this.#isAsking = false;
    if (this.#askAtMs === Infinity) return;
    this.#askAtMs = this.#now() + doubtEveryMs;
    const isListed = models?.includes(this.#options.model);
    if (isFirst) {
      if (models === undefined) return;
      this.#name = name;
      this.#wasListed = isListed === true;
      // The next answer may already have another name.
      this.#askAtMs = -Infinity;
    } else if (isListed === true) this.#name = name;
    else if (models !== undefined && models.length > 0) {
      this.#isOther = true;
      this.#options.changed(true);
      this.#lookLater();
    }
  }

  #lookLater(): void {
    this.#timer = setTimeout(() => void this.#look(), this.#options.lookEveryMs ?? 5_000).unref();
  }

  async #look(): Promise<void> {
    const models = await this.#options.list();
    if (!this.#isOther) return;
    if (models?.includes(this.#options.model) !== true) return this.#lookLater();
    this.#isOther = false;
    this.#askAtMs = -Infinity;
    this.#options.changed(false);
  }
}
