/**
 * Whether a server still has the model that it is used for. Some answer 200 for any name with the one that they have, and somebody may have
 * started another there. What an answer calls its model proves nothing: it may be an alias, a snapshot's name or what was asked for. So it
 * has to be another name than this server's answers had before, and the server's own list, which had our model, must no longer
 * have it (docs/decisions/031-failing-backends.md).
 */
export interface ServedModelOptions {
  /** Asks the server for its models; `undefined`: it does not tell, or not now. Never rejects. */
  readonly list: () => Promise<readonly string[] | undefined>;
  /** Our name for it there. */
  readonly model: string;
  /** It has another one from now on, or ours again. */
  readonly changed: (isOther: boolean) => void;
  readonly now?: () => number;
  readonly lookEveryMs?: number;
}

/** A longer name is no name. */
const nameCharactersMax = 512;
/** Names that change with each answer must not be looked into each time. */
const doubtEveryMs = 30_000;

export class ServedModel {
  readonly #options: ServedModelOptions;
  readonly #now: () => number;
  /** What its answers call the model. */
  #name: string | undefined;
  /** Its list had our model when it first answered; otherwise there is nothing to compare. */
  #wasListed = false;
  #isAsking = false;
  #askAtMs = -Infinity;
  #isOther = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ServedModelOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** It has another model, so it must get no request. */
  get isOther(): boolean {
    return this.#isOther;
  }

  /** What a piece of an answer calls its model. Costs one comparison as long as that is the same. */
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
      // The next answer may have another name already.
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
